#include "vmm/sim_driver.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <csignal>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "base/unix_socket.h"
#include "vmm/sim_process.h"

namespace space::vmm {
namespace {

constexpr std::chrono::seconds kStartLimit{10};

struct SimState {
  SimState(asio::any_io_executor executor, BlockingPool& p, SimOptions o, std::string i)
      : pool(p), options(std::move(o)), id(std::move(i)), changed(executor), watched(executor), socket(options.sockets / (id + ".agent")) {}
  BlockingPool& pool;
  SimOptions options;
  std::string id;
  Signal changed;
  asio::posix::stream_descriptor watched;  // a copy of the pidfd
  std::filesystem::path socket;
  std::optional<SimProcess> process;
  VmState state = VmState::waiting;
  bool gone = false;
};

asio::awaitable<void> watch(std::shared_ptr<SimState> state) {
  (void)co_await state->watched.async_wait(asio::posix::stream_descriptor::wait_read, kAsTuple);
  state->gone = true;
  state->state = VmState::ended;
  state->changed.notify_all();
}

Result<SimProcess> start_agent(const SimOptions& options, const std::filesystem::path& socket) {
  TRY(SimProcess process,
      start_in_namespaces({options.agent.string(), "--no-init", "--listen", "unix:" + socket.string(), "--user", "nobody"}));
  const auto end = std::chrono::steady_clock::now() + kStartLimit;
  while (!connect_unix(socket, SOCK_STREAM)) {
    if (std::chrono::steady_clock::now() > end) {
      kill_and_reap(process);
      return fail(ErrorKind::unavailable, "agent_not_ready", "the agent did not listen in time",
                  fmt::format("run {} by hand", options.agent.string()));
    }
    ::usleep(2'000);
  }
  return process;
}

class SimVm : public Vm {
 public:
  explicit SimVm(std::shared_ptr<SimState> state) : state_(std::move(state)) {}
  ~SimVm() override {
    boost::system::error_code ignored;
    state_->watched.close(ignored);
  }
  const std::string& id() const override { return state_->id; }
  VmState state() const override { return state_->state; }
  pid_t pid() const override { return state_->process ? state_->process->pid : 0; }
  Task<> boot() override { return start(VmState::running); }
  Task<> load(const DeviceState&) override { return start(VmState::paused); }
  Task<> resume() override { return to(VmState::running, SIGCONT); }
  Task<> pause() override { return to(VmState::paused, SIGSTOP); }
  Task<> save_base(const Fd& into) override {
    CO_TRY_VOID(co_await pause());
    co_return write_all(into, "sim\n");
  }
  Task<> prepare_save(const Fd&) override { co_return nothing_saved(); }
  Task<> save_devices(bool) override { co_return nothing_saved(); }
  Task<wire::MemoryFiles> memory() override { co_return nothing_saved(); }
  Task<> prepare_disk(const Fd&) override { co_return nothing_saved(); }
  Task<> switch_disk() override { co_return nothing_saved(); }
  Task<> discard_disk() override { co_return nothing_saved(); }
  Task<> replace_generations(std::size_t, std::vector<Fd>) override { co_return nothing_saved(); }
  Task<> close() override { co_return Result<>{}; }
  Task<> destroy() override {
    auto state = state_;
    auto work = [state] {
      if (state->process) kill_and_reap(*state->process);
      ::unlink(state->socket.c_str());
    };
    if (!std::exchange(destroyed_, true)) {
      auto counted = [work] { return work(), 0; };
      (void)co_await state->pool.run(counted);
    }
    state->gone = true;
    state->state = VmState::ended;
    state->changed.notify_all();
    co_return Result<>{};
  }
  asio::awaitable<void> ended() override {
    auto state = state_;
    while (!state->gone) co_await state->changed.wait();
  }
  asio::awaitable<std::string> console_tail() override { co_return std::string("(the sim driver has no console)"); }
  http::Connector port_connector(std::uint16_t) override {
    return []() -> Task<Fd> {
      co_return fail(ErrorKind::unsupported, "ports_unsupported", "the sim driver has no machine whose ports could be reached");
    };
  }
  http::Connector agent_connector() override { return http::unix_connector(state_->socket.string()); }

 private:
  static tl::unexpected<Error> nothing_saved() {
    return fail(ErrorKind::unsupported, "sim_saves_nothing", "the sim driver has no machine that could be saved", "use the qemu driver");
  }
  Task<> start(VmState next) {
    auto state = state_;
    if (state->state != VmState::waiting) co_return fail(ErrorKind::conflict, "vm_state_conflict", "this VM has been started before");
    auto work = [state] { return start_agent(state->options, state->socket); };
    CO_TRY(SimProcess process, co_await state->pool.run(work));
    CO_TRY(Fd copy, process.pidfd.duplicate());
    state->process = std::move(process);
    boost::system::error_code error;
    state->watched.assign(copy.get(), error);
    if (error) co_return fail_errno(error.value(), "watch a process");
    (void)copy.release();
    state->state = next;
    space::spawn(co_await asio::this_coro::executor, watch(state));
    co_return Result<>{};
  }
  Task<> to(VmState next, int signal) {
    if (state_->state != VmState::running && state_->state != VmState::paused)
      co_return fail(ErrorKind::conflict, "vm_state_conflict", "this VM does not run");
    if (::syscall(SYS_pidfd_send_signal, state_->process->pidfd.get(), signal, nullptr, 0) != 0)
      co_return fail_errno(errno, "signal a process");
    state_->state = next;
    co_return Result<>{};
  }

  std::shared_ptr<SimState> state_;
  bool destroyed_ = false;
};

}  // namespace

Task<std::unique_ptr<SimDriver>> SimDriver::open(BlockingPool& pool, SimOptions options) {
  CO_TRY_VOID(make_directories(options.sockets, 0700));
  if (options.agent.empty()) {
    std::error_code error;
    const auto folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
    options.agent = folder / "space-agent";
    if (!std::filesystem::exists(options.agent, error))
      options.agent = folder / "src" / "agent" / "space-agent";  // where a build leaves it
  }
  if (::access(options.agent.c_str(), X_OK) != 0) co_return fail_errno(errno, fmt::format("run the agent {}", options.agent.string()));
  log::warn("vmm.driver", {{"driver", "sim"}, {"accelerator", "none"}, {"note", "no virtual machines: nothing is isolated"}});
  co_return std::unique_ptr<SimDriver>(new SimDriver(pool, std::move(options)));
}

Task<std::unique_ptr<Vm>> SimDriver::spawn(VmSpec spec) {
  if (!is_id(spec.id)) co_return fail(ErrorKind::invalid_argument, "invalid_vm_spec", "the VM's id is not an id");
  auto executor = co_await asio::this_coro::executor;
  auto state = std::make_shared<SimState>(executor, pool_, options_, spec.id);
  co_return std::unique_ptr<Vm>(std::make_unique<SimVm>(state));
}

Task<std::unique_ptr<Vm>> SimDriver::adopt(const std::string& id) {
  co_return fail(ErrorKind::not_found, "vm_not_found", fmt::format("{} ended with the process that started it", id));
}

Task<std::vector<std::string>> SimDriver::list() { co_return std::vector<std::string>{}; }

Task<> SimDriver::merge_generations(DiskMerge) {
  co_return fail(ErrorKind::unsupported, "sim_saves_nothing", "the sim driver has no disks", "use the qemu driver");
}

Task<> SimDriver::sweep(const std::string& id) {
  if (is_id(id)) ::unlink((options_.sockets / (id + ".agent")).c_str());
  co_return Result<>{};
}

}  // namespace space::vmm
