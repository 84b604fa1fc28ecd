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
  Fd kernel;          // uncompressed ELF, read-only
  Fd initramfs;       // read-only
};

struct DiskLayer {
  Fd file;
  enum class Format { raw, qcow2 } format = Format::qcow2;
  bool read_only = true;
};

struct VmSpec {
  std::string id;  // base::new_id; names namespace, cgroup and sockets
  Size size;
  const GuestImages* images = nullptr;
  Fd memory;  // a memfd: sealed base image (private map) or, for making a base, an empty one (shared map)
  // Shared memory is for making a base; everything else maps a sealed image privately.
  bool memory_shared = false;
  // The one thing that this VM can do first; fixed when its process starts. With shared memory: boot.
  enum class Begin { load, load_devices, boot } begin = Begin::load;
  std::vector<DiskLayer> disk;  // bottom to top; only the top may be writable; at most 24
  std::string vmm_build;        // "" for the current one
  bool ahead = false;           // nobody waits for it: it is made with what processors others leave
};

// What a driver saved when it made a base or a checkpoint: opaque to everyone else.
struct DeviceState {
  Fd file;
  bool whole_configuration = true;  // false: devices alone, as a running VM's checkpoint has; loaded by Begin::load_devices
};

// Several generations of a disk into one image.
struct DiskMerge {
  std::string id;  // of the process that does it, as a VM's
  std::uint32_t disk_mib = 4096;
  std::vector<Fd> generations;  // frozen, bottom to top
  Fd into, scratch;             // two empty images of that size; the second is of no use afterwards
};

enum class VmState { waiting, running, paused, ended };

class Vm {
 public:
  virtual ~Vm() = default;  // does not end the VM: destroy does; a node that dies leaves it running for adoption
  virtual const std::string& id() const = 0;
  virtual VmState state() const = 0;
  virtual Task<> boot() = 0;                          // run the kernel
  virtual Task<> load(const DeviceState& state) = 0;  // waiting → paused
  virtual Task<> resume() = 0;
  virtual Task<> pause() = 0;
  // For a VM with shared memory (base making): pauses and writes device state; memory and disk files are complete after it.
  virtual Task<> save_base(const Fd& into) = 0;
  // Hands over the new, empty file that save_devices() writes, once: what need not wait until the guest stands still.
  virtual Task<> prepare_save(const Fd& into) = 0;
  // For a VM with private memory: pauses it, if it runs, and saves its devices as they stand then, into the file that was prepared since
  // it last ran; it stays paused. The pages that belong to them are read through memory(). What was written to the disk is in its files
  // after a pause. With `disk` the prepared generation is put on top in the same pause; switch_disk() then waits for that and tells how
  // it went. All of it is asked for at once: the guest stands still for the way of every question and every answer. An error leaves it
  // running or paused (state()), and its disk switched or not.
  virtual Task<> save_devices(bool disk) = 0;
  virtual Task<wire::MemoryFiles> memory() = 0;
  // Its share when VMs want more of the processor than there is: 1 to 10,000; 10 from the start.
  virtual Task<> set_cpu_weight(std::uint32_t) { co_return Result<>{}; }
  // The disk's next generation: `overlay` is an empty image over what there is. Both may be done while the VM runs; where memory is
  // saved with the disk the switch belongs into the same pause. After it nothing writes to the old top any more, though the VM still
  // holds it open.
  virtual Task<> prepare_disk(const Fd& overlay) = 0;
  virtual Task<> switch_disk() = 0;  // or the end of the switch that save_devices() began; resume() waits for that end too
  // Closes a prepared generation that is not to be used after all; an error when the disk stands on it.
  virtual Task<> discard_disk() = 0;
  // Puts these frozen images (bottom to top) in the place of all that lies between the lowest `base_files` images of the disk and its top;
  // together they hold the same. The VM may run, and has closed what was there before when this returns.
  virtual Task<> replace_generations(std::size_t base_files, std::vector<Fd> generations) = 0;
  // Closes the disk's files in order and ends the process, at most for some seconds; destroy() must follow.
  virtual Task<> close() = 0;
  virtual Task<> destroy() = 0;               // idempotent; nothing of the VM is left when it returns
  virtual asio::awaitable<void> ended() = 0;  // returns when the VMM process is gone, for any reason
  // Last bytes of the guest's console and of what the VMM said, for error messages; hostile text. Asks the VMM for at most
  // half a second, and answers what was known before when it is gone.
  virtual asio::awaitable<std::string> console_tail() = 0;
  virtual http::Connector agent_connector() = 0;  // a new TCP connection to the agent
  // A socket on which something waits that tells which pages the guest writes (snapshot::watch_writes); once, and empty when this VM
  // has none.
  virtual Fd take_write_watch() { return {}; }
  // One to another port of the guest's address on the wire. unavailable/port_closed when the guest refuses it.
  virtual http::Connector port_connector(std::uint16_t port) = 0;
  virtual pid_t pid() const = 0;  // for readings of /proc and tests
};

class Driver {
 public:
  virtual ~Driver() = default;
  virtual std::string name() const = 0;         // "qemu", "sim"
  virtual std::string accelerator() const = 0;  // "kvm", "tcg", "none"
  // Part of the base key: everything of the driver that a saved state depends on (VMM build, machine arguments, CPU definition).
  virtual std::string state_key() const = 0;
  // The same for a VM that an earlier VMM build runs (VmSpec::vmm_build): a state loads where its key is this one.
  virtual std::string state_key_of(const std::string& /*vmm_build*/) const { return state_key(); }
  virtual Task<std::unique_ptr<Vm>> spawn(VmSpec spec) = 0;  // waiting: neither booted nor loaded
  virtual Task<std::unique_ptr<Vm>> adopt(const std::string& id) = 0;
  virtual Task<std::vector<std::string>> list() = 0;  // ids of VMs that exist on this host, ours alone
  virtual Task<> sweep(const std::string& id) = 0;    // removes whatever is left of an id that nobody owns
  // Merges in a jailed process that no VM shares and that is gone when this returns, whatever came of it. `into` then holds everything
  // that the generations hold and nothing else, but for a durable name. unavailable/disk_not_merged.
  virtual Task<> merge_generations(DiskMerge merge) = 0;
};

}  // namespace space::vmm
