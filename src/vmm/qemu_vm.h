// One VM under QEMU: its control connection, its process, its console. Made by QemuDriver only.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/async.h"
#include "base/fd.h"
#include "vmm/driver.h"
#include "vmm/qemu_saving.h"
#include "wire/warden_client.h"

namespace space::vmm {

// What a VM needs of its surroundings; all of it outlives the VM.
struct QemuHost {
  std::shared_ptr<wire::WardenClient> warden;
  BlockingPool* pool = nullptr;
  std::filesystem::path sockets;  // node's private folder of control sockets

  std::filesystem::path control_socket(const std::string& id) const { return sockets / (id + ".qmp"); }
};

class QemuVm : public Vm {
 public:
  // Takes over a VMM that was just started, or found again (`log` empty then). Connects to its control socket; on failure the
  // caller destroys what is left. `loads`: started to be loaded, not booted.
  static Task<std::unique_ptr<QemuVm>> take(QemuHost host, std::string id, wire::VmmProcess process, Fd log, bool loads, bool found);
  ~QemuVm() override;

  const std::string& id() const override;
  VmState state() const override;
  Task<> boot() override;
  Task<> load(const DeviceState& state) override;
  Task<> resume() override;
  Task<> pause() override;
  Task<> save_base(const Fd& into) override;
  Task<> prepare_save(const Fd& into) override;
  Task<> save_devices(bool disk) override;
  Task<wire::MemoryFiles> memory() override;
  Task<> set_cpu_weight(std::uint32_t weight) override;
  Task<> prepare_disk(const Fd& overlay) override;
  Task<> switch_disk() override;
  Task<> discard_disk() override;
  Task<> replace_generations(std::size_t base_files, std::vector<Fd> generations) override;
  Task<> close() override;
  Task<> destroy() override;
  asio::awaitable<void> ended() override;
  asio::awaitable<std::string> console_tail() override;
  http::Connector agent_connector() override;
  Fd take_write_watch() override;
  http::Connector port_connector(std::uint16_t port) override;
  pid_t pid() const override;

  // Commands of the driver's own to this VM, for as long as it lives.
  QemuAsk asking();

  // Everything of `id` on this host: process, jail, namespace, control socket. Idempotent; blocks, for the pool.
  static Result<> remove(const QemuHost& host, const std::string& id);

 private:
  struct State;
  explicit QemuVm(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace space::vmm
