// The one interface to virtual machines. `qemu` is the real driver, `sim` a process in place of a VM for load tests of the
// control plane. No word of a particular VMM crosses this header.
//
// A VM is spawned empty and waiting, then either booted (template base making, cold start) or loaded. All calls are for node's
// loop; what blocks happens on the driver's pool. Everything that comes back from the VMM is hostile and has been checked.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/async.h"
#include "base/fd.h"
#include "http/client.h"
#include "wire/warden_client.h"

namespace space::vmm {

struct Size {
  std::uint32_t cpus = 1;
  std::uint32_t memory_mib = 512;
  std::uint32_t disk_mib = 4096;
  bool operator==(const Size&) const = default;
};

struct GuestImages {  // shared by all VMs of a release
  Fd kernel;     // uncompressed ELF, read-only
  Fd initramfs;  // read-only
};

struct DiskLayer {
  Fd file;
  enum class Format { raw, qcow2 } format = Format::qcow2;
  bool read_only = true;
};

struct VmSpec {
  std::string id;          // base::new_id; names namespace, cgroup and sockets
  Size size;
  const GuestImages* images = nullptr;
  Fd memory;               // a memfd: sealed base image (private map) or, for making a base, an empty one (shared map)
  // Shared memory is for making a base; everything else maps a sealed image privately.
  bool memory_shared = false;
  // The one thing that this VM can do first; fixed when its process starts. With shared memory: boot.
  enum class Begin { load, load_devices, boot } begin = Begin::load;
  std::vector<DiskLayer> disk;  // bottom to top; only the top may be writable; at most 24
  std::string vmm_build;        // "" for the current one
};

// What a driver saved when it made a base or a checkpoint: opaque to everyone else.
struct DeviceState {
  Fd file;
  bool whole_configuration = true;  // false: devices alone, as a running VM's checkpoint has; loaded by Begin::load_devices
};

enum class VmState { waiting, running, paused, ended };

class Vm {
 public:
  virtual ~Vm() = default;  // does not end the VM: destroy does; a node that dies leaves it running for adoption
  virtual const std::string& id() const = 0;
  virtual VmState state() const = 0;
  virtual Task<> boot() = 0;                              // run the kernel
  virtual Task<> load(const DeviceState& state) = 0;      // waiting → paused
  virtual Task<> resume() = 0;
  virtual Task<> pause() = 0;
  // For a VM with shared memory (base making): pauses and writes device state; memory and disk files are complete after it.
  virtual Task<> save_base(const Fd& into) = 0;
  // For a VM with private memory: its devices as they stand, while it is paused (it stays so). `into` is a new, empty file. The
  // pages that belong to them are read through memory(). What was written to the disk is in its files after a pause.
  virtual Task<> save_devices(const Fd& into) = 0;
  virtual Task<wire::MemoryFiles> memory() = 0;
  // The disk's next generation: `overlay` is an empty image over what there is. Prepared while the VM runs; after the switch, which
  // needs a pause, nothing writes to the old top any more, though the VM still holds it open.
  virtual Task<> prepare_disk(const Fd& overlay) = 0;
  virtual Task<> switch_disk() = 0;
  // Copies what the generations above the base's own files hold into the top one, which then stands on the base alone. The VM may
  // run; takes as long as there is data.
  virtual Task<> flatten_disk() = 0;
  // Closes the disk's files in order and ends the process, at most for some seconds; destroy() must follow.
  virtual Task<> close() = 0;
  virtual Task<> destroy() = 0;                           // idempotent; nothing of the VM is left when it returns
  virtual asio::awaitable<void> ended() = 0;              // returns when the VMM process is gone, for any reason
  // Last bytes of the guest's console and of what the VMM said, for error messages; hostile text. Asks the VMM for at most
  // half a second, and answers what was known before when it is gone.
  virtual asio::awaitable<std::string> console_tail() = 0;
  virtual http::Connector agent_connector() = 0;          // a new TCP connection to the agent
  // A socket on which something waits that tells which pages the guest writes (snapshot::watch_writes); once, and empty when this VM
  // has none.
  virtual Fd take_write_watch() { return {}; }
  // One to another port of the guest's address on the wire. unavailable/port_closed when the guest refuses it.
  virtual http::Connector port_connector(std::uint16_t port) = 0;
  virtual pid_t pid() const = 0;                          // for readings of /proc and tests
};

class Driver {
 public:
  virtual ~Driver() = default;
  virtual std::string name() const = 0;         // "qemu", "sim"
  virtual std::string accelerator() const = 0;  // "kvm", "tcg", "none"
  // Part of the base key: everything of the driver that a saved state depends on (VMM build, machine arguments, CPU definition).
  virtual std::string state_key() const = 0;
  virtual Task<std::unique_ptr<Vm>> spawn(VmSpec spec) = 0;  // waiting: neither booted nor loaded
  virtual Task<std::unique_ptr<Vm>> adopt(const std::string& id) = 0;
  virtual Task<std::vector<std::string>> list() = 0;         // ids of VMs that exist on this host, ours alone
  virtual Task<> sweep(const std::string& id) = 0;           // removes whatever is left of an id that nobody owns
};

}  // namespace space::vmm
