#include "vmm/qemu_vm.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/encoding.h"
#include "base/file.h"
#include "base/log.h"
#include "base/unix_socket.h"
#include "vmm/agent_socket.h"
#include "vmm/qemu_arguments.h"
#include "vmm/qemu_disk.h"
#include "vmm/qemu_saving.h"
#include "vmm/qmp.h"
#include "vmm/vmm_log.h"

namespace space::vmm {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kMigrationLimit{60'000};  // a load takes milliseconds; this is for a host that swaps
constexpr milliseconds kConsoleLimit{500};
constexpr milliseconds kQuitLimit{2'000};
constexpr milliseconds kSettleLimit{2'000};
constexpr milliseconds kEndLimit{10'000};

Error ended_error(const std::string& id) {
  return Error{ErrorKind::unavailable, "vm_ended", fmt::format("the virtual machine {} has ended", id), "create another sandbox"};
}

}  // namespace

struct QemuVm::State : std::enable_shared_from_this<State> {
  State(asio::any_io_executor e, QemuHost h, std::string i, wire::VmmProcess p)
      : executor(e),
        host(std::move(h)),
        id(std::move(i)),
        pid(p.pid),
        pidfd(e),
        changed(e),
        agent(std::make_shared<AgentSockets>(host.warden, *host.pool, id)),
        write_watch(std::move(p.userfault)) {
    boost::system::error_code error;
    pidfd.assign(p.pidfd.get(), error);
    if (!error) (void)p.pidfd.release();
  }

  asio::any_io_executor executor;
  QemuHost host;
  std::string id;
  pid_t pid;
  asio::posix::stream_descriptor pidfd;
  Signal changed;
  std::shared_ptr<AgentSockets> agent;
  Fd write_watch;
  std::shared_ptr<VmmLog> log;
  std::unique_ptr<QmpClient> qmp;
  VmState state = VmState::waiting;
  bool loads = true;
  bool gone = false;       // the process has ended
  bool destroyed = false;  // destroy() was called
  bool shutting_down = false;
  std::string migration;  // the last status of a save or load
  std::string disk_top;   // the node that the guest writes to now
  DiskNode next_disk;     // the prepared generation
  // The switch to it that was sent behind the saving of devices, until switch_disk() has told of it.
  struct Switch {
    QmpClient::Series sent;
    std::size_t number;  // in it
    std::optional<Result<>> done;
  };
  std::optional<Switch> switching;
  std::optional<std::int64_t> save_set;  // that the devices are saved into next; one of used_sets
  std::vector<std::int64_t> used_sets;   // of descriptors that are to be taken out of the VMM, once that holds no guest up
  std::string console;                   // what was read of the guest's console so far, bounded

  void end() {
    gone = true;
    state = VmState::ended;
    changed.notify_all();
  }

  // The process ends for whatever reason: its pidfd becomes readable (pidfd_open(2)).
  static asio::awaitable<void> watch(std::shared_ptr<State> self) {
    auto [error] = co_await self->pidfd.async_wait(asio::posix::stream_descriptor::wait_read, kAsTuple);
    if (error) co_return;
    if (!self->destroyed) log::warn("vm.ended", {{"vm", self->id}, {"pid", static_cast<int>(self->pid)}});
    self->end();
  }

  void on_event(const QmpEvent* event) {
    if (!event) {
      // Without its control connection a VM cannot be owned any more; only its end can be waited for, or brought about.
      if (!destroyed && !gone) log::warn("vm.control_lost", {{"vm", id}});
    } else if (event->name == "MIGRATION") {
      const json::value* status = event->data.if_contains("status");
      if (status && status->is_string() && status->get_string().size() < 64) migration = std::string(status->get_string());
    } else if (event->name == "SHUTDOWN" && !std::exchange(shutting_down, true)) {
      log::info("vm.guest_shutdown", {{"vm", id}});
      spawn(executor, quit(shared_from_this()));
    }
    changed.notify_all();
  }

  // The guest switched itself off or panicked and stands still: its last words, then the end of the process.
  static asio::awaitable<void> quit(std::shared_ptr<State> self) {
    co_await read_console(self);
    if (self->gone || self->destroyed || !self->qmp) co_return;
    (void)co_await self->qmp->execute("quit", {}, nullptr, kQuitLimit);
  }

  static asio::awaitable<void> read_console(std::shared_ptr<State> self) {
    if (self->gone || !self->qmp || !self->qmp->usable()) co_return;
    json::object arguments{{"device", "console"}, {"size", kConsoleBytes}, {"format", "base64"}};
    auto answer = co_await self->qmp->execute("ringbuf-read", std::move(arguments), nullptr, kConsoleLimit);
    if (!answer || !answer->is_string()) co_return;
    const auto bytes = base64_decode(std::string_view(answer->get_string()));
    if (!bytes) co_return;
    self->console += *bytes;
    if (self->console.size() > kConsoleBytes) self->console.erase(0, self->console.size() - kConsoleBytes);
  }

  std::string tail() const {
    std::string text = printable(console, 4'000);
    if (log && !log->tail().empty()) text += fmt::format("\n[vmm] {}", printable(log->tail(), 1'000));
    return text;
  }

  // A closed control connection and the end of the process come one after the other, on a busy host with a pause between.
  asio::awaitable<void> settle() {
    const auto end = std::chrono::steady_clock::now() + kSettleLimit;
    while (!gone && std::chrono::steady_clock::now() < end) co_await changed.wait_for(milliseconds(100));
  }

  // Runs one command.
  Task<json::value> command(std::string name, json::object arguments = {}, const Fd* pass = nullptr) {
    auto self = shared_from_this();
    if (gone || !qmp) co_return fail(ended_error(id));
    auto answer = co_await qmp->execute(std::move(name), std::move(arguments), pass);
    if (!answer) co_return fail(co_await explained(self, std::move(answer).error()));
    co_return answer;
  }

  // A VMM that ended in the meantime is the better explanation of any error.
  static asio::awaitable<Error> explained(std::shared_ptr<State> self, Error error) {
    if (error.code == "qmp_closed") co_await self->settle();
    Error told = self->gone && error.code == "qmp_closed" ? ended_error(self->id) : error;
    co_await read_console(self);
    log::warn("vm.command_failed", {{"vm", self->id}, {"error", error}, {"tail", self->tail()}});
    co_return told;
  }

  static Task<> answer(std::shared_ptr<State> self, QmpClient::Series sent, std::size_t number) {
    auto answer = co_await sent.answer(number);
    if (!answer) co_return fail(co_await explained(self, std::move(answer).error()));
    co_return Result<>{};
  }

  // Waits until the disk is switched or not, where that was sent.
  static Task<> finish_switch(std::shared_ptr<State> self) {
    if (!self->switching) co_return Result<>{};
    if (!self->switching->done) {
      auto done = co_await answer(self, self->switching->sent, self->switching->number);
      if (done) self->next_disk = {};
      self->switching->done = std::move(done);
    }
    co_return *self->switching->done;
  }

  static asio::awaitable<void> take_away(std::shared_ptr<State> self) {
    const std::vector<std::int64_t> sets = std::exchange(self->used_sets, {});
    for (const std::int64_t set : sets) co_await qemu_remove_descriptor(self->asking(), set);
  }

  QemuAsk asking() {
    return [self = shared_from_this()](std::string name, json::object arguments, const Fd* pass) {
      return self->command(std::move(name), std::move(arguments), pass);
    };
  }

  Task<> capability(std::string name) {
    json::array list;
    list.push_back(json::object{{"capability", name}, {"state", true}});
    json::object arguments{{"capabilities", std::move(list)}};
    CO_TRY_VOID(co_await command("migrate-set-capabilities", std::move(arguments)));
    co_return Result<>{};
  }

  // Runs a command that starts a migration with `file` as the other end, and waits for the event that ends it.
  Task<> migrate(std::string name, const Fd& file) {
    json::object named{{"fdname", "state"}};
    CO_TRY_VOID(co_await command("getfd", std::move(named), &file));
    migration.clear();
    json::object where{{"uri", "fd:state"}};
    CO_TRY_VOID(co_await command(std::move(name), std::move(where)));
    const auto end = std::chrono::steady_clock::now() + kMigrationLimit;
    while (migration != "completed" && migration != "failed" && !gone && qmp->usable()) {
      const auto left = std::chrono::ceil<milliseconds>(end - std::chrono::steady_clock::now());
      if (left <= milliseconds(0)) break;
      co_await changed.wait_for(left);
    }
    if (migration == "completed") co_return Result<>{};
    auto self = shared_from_this();
    co_await read_console(self);
    log::warn("vm.state_failed", {{"vm", id}, {"status", migration}, {"tail", tail()}});
    if (gone) co_return fail(ended_error(id));
    if (migration == "failed")
      co_return fail(ErrorKind::unavailable, "vm_state_refused", "the VMM could not read or write the saved state",
                     "make the base again: delete it");
    co_return fail(ErrorKind::deadline_exceeded, "vm_state_timeout", "saving or loading a VM's state did not end", "see the log of node");
  }

  Task<> expect(std::string_view status) {
    CO_TRY(const json::value answer, co_await command("query-status"));
    const json::value* value = answer.is_object() ? answer.get_object().if_contains("status") : nullptr;
    if (!value || !value->is_string() || value->get_string() != status)
      co_return fail(ErrorKind::unavailable, "vm_state_unexpected", fmt::format("the VMM is not {}", status),
                     "delete the sandbox and create another");
    co_return Result<>{};
  }

  Result<> require(VmState wanted, std::string_view doing) const {
    if (state == wanted) return {};
    if (state == VmState::ended) return fail(ended_error(id));
    return fail(ErrorKind::conflict, "vm_state_conflict", fmt::format("this VM cannot {} now", doing), "look at its state first");
  }
};

QemuVm::QemuVm(std::shared_ptr<State> state) : state_(std::move(state)) {}

QemuVm::~QemuVm() {
  state_->destroyed = true;
  state_->qmp.reset();
  if (state_->log) state_->log->close();
  boost::system::error_code ignored;
  state_->pidfd.close(ignored);
  state_->changed.notify_all();
}

Task<std::unique_ptr<QemuVm>> QemuVm::take(QemuHost host, std::string id, wire::VmmProcess process, Fd log, bool loads, bool found) {
  auto executor = co_await asio::this_coro::executor;
  auto state = std::make_shared<State>(executor, std::move(host), std::move(id), std::move(process));
  std::unique_ptr<QemuVm> vm(new QemuVm(state));
  if (!state->pidfd.is_open()) co_return fail(ErrorKind::internal, "pidfd_unusable", "the VMM's pidfd cannot be watched");
  state->loads = loads;
  if (log) state->log = VmmLog::follow(executor, state->id, std::move(log));
  spawn(executor, State::watch(state));
  // The socket was listening before the VMM started, so this does not wait; the greeting does. Refused: nobody holds it any more.
  auto socket = connect_unix(state->host.control_socket(state->id), SOCK_STREAM);
  std::weak_ptr<State> weak = state;
  QmpClient::EventHandler handler = [weak](const QmpEvent* event) {
    if (auto self = weak.lock()) self->on_event(event);
  };
  Result<std::unique_ptr<QmpClient>> qmp = fail(ErrorKind::unavailable, "qmp_closed", "the VMM's control socket takes no connection");
  if (socket) qmp = co_await QmpClient::open(std::move(*socket), std::move(handler));
  if (!qmp) {
    if (qmp.error().code == "qmp_closed") co_await state->settle();
    Error error = qmp.error();
    if (state->gone && error.code == "qmp_closed") error = ended_error(state->id);
    error.message += state->tail();
    co_return fail(std::move(error));
  }
  state->qmp = std::move(*qmp);
  if (!found) {
    CO_TRY_VOID(co_await state->capability("events"));
    co_return vm;
  }
  CO_TRY(const json::value answer, co_await state->command("query-status"));
  const json::value* status = answer.is_object() ? answer.get_object().if_contains("status") : nullptr;
  const std::string word = status && status->is_string() ? std::string(status->get_string()) : "";
  if (word == "running")
    state->state = VmState::running;
  else if (word == "paused")
    state->state = VmState::paused;
  else if (word == "inmigrate" || word == "prelaunch")
    state->state = VmState::waiting;
  else
    co_return fail(ended_error(state->id));  // switched off, panicked, or half-way through a save
  state->loads = word != "prelaunch";
  co_return vm;
}

const std::string& QemuVm::id() const { return state_->id; }
VmState QemuVm::state() const { return state_->state; }
Fd QemuVm::take_write_watch() { return std::move(state_->write_watch); }
pid_t QemuVm::pid() const { return state_->pid; }
http::Connector QemuVm::port_connector(std::uint16_t port) { return state_->agent->connector(port); }
http::Connector QemuVm::agent_connector() { return state_->agent->connector(); }

Task<> QemuVm::boot() {
  auto state = state_;
  CO_TRY_VOID(state->require(VmState::waiting, "be booted"));
  if (state->loads)
    co_return fail(ErrorKind::conflict, "vm_state_conflict", "this VM was started to be loaded, not booted", "share its memory");
  CO_TRY_VOID(co_await state->command("cont"));
  state->state = VmState::running;
  co_return Result<>{};
}

Task<> QemuVm::load(const DeviceState& from) {
  auto state = state_;
  CO_TRY_VOID(state->require(VmState::waiting, "be loaded"));
  if (!state->loads)
    co_return fail(ErrorKind::conflict, "vm_state_conflict", "this VM was started to be booted, not loaded", "map its memory privately");
  // An own file description: the VMM reads from its offset.
  CO_TRY(Fd file, open_file(fmt::format("/proc/self/fd/{}", from.file.get()), O_RDONLY));
  if (from.whole_configuration) CO_TRY_VOID(co_await state->capability("x-ignore-shared"));
  CO_TRY_VOID(co_await state->migrate("migrate-incoming", file));
  CO_TRY_VOID(co_await state->expect("paused"));
  state->state = VmState::paused;
  co_return Result<>{};
}

Task<> QemuVm::resume() {
  auto state = state_;
  if (state->state == VmState::running) co_return Result<>{};
  CO_TRY_VOID(state->require(VmState::paused, "be resumed"));
  // Never while its disk is half one and half the other. How it went is switch_disk()'s to tell.
  (void)co_await State::finish_switch(state);
  CO_TRY_VOID(co_await state->command("cont"));
  if (state->state == VmState::paused) state->state = VmState::running;
  state->save_set.reset();
  if (!state->used_sets.empty()) spawn(state->executor, State::take_away(state));
  co_return Result<>{};
}

Task<> QemuVm::pause() {
  auto state = state_;
  if (state->state == VmState::paused) co_return Result<>{};
  CO_TRY_VOID(state->require(VmState::running, "be paused"));
  CO_TRY_VOID(co_await state->command("stop"));
  if (state->state == VmState::running) state->state = VmState::paused;
  co_return Result<>{};
}

Task<> QemuVm::save_base(const Fd& into) {
  auto state = state_;
  CO_TRY_VOID(co_await pause());
  CO_TRY_VOID(co_await state->capability("x-ignore-shared"));
  CO_TRY_VOID(co_await state->migrate("migrate", into));
  co_return Result<>{};
}

Task<> QemuVm::prepare_save(const Fd& into) {
  auto state = state_;
  // The VMM's own way of opening wants exactly this mode.
  CO_TRY(const Fd file, open_file(fmt::format("/proc/self/fd/{}", into.get()), O_WRONLY));
  CO_TRY(const std::int64_t set, co_await qemu_add_descriptor(state->asking(), file));
  state->used_sets.push_back(set);
  state->save_set = set;
  co_return Result<>{};
}

Task<> QemuVm::save_devices(bool disk) {
  auto state = state_;
  const bool runs = state->state == VmState::running;
  if (!runs) CO_TRY_VOID(state->require(VmState::paused, "be saved"));
  const auto set = std::exchange(state->save_set, std::nullopt);
  if (!set)
    co_return fail(ErrorKind::internal, "save_not_prepared", "no file was handed over for this VM's devices",
                   "report it: this is a fault of node");
  if (disk && state->next_disk.node.empty())
    co_return fail(ErrorKind::conflict, "vm_state_conflict", "no next disk was prepared", "prepare it first");
  if (state->gone || !state->qmp) co_return fail(ended_error(state->id));
  std::vector<QmpCommand> commands;
  if (runs) commands.push_back({"stop"});
  const std::size_t saving = commands.size();
  commands.push_back(qemu_save_devices(*set));
  if (disk) commands.push_back(qemu_switch_overlay(state->disk_top, state->next_disk.node));
  auto sent = co_await state->qmp->send_together(std::move(commands));
  if (!sent) co_return fail(co_await State::explained(state, std::move(sent).error()));
  if (disk) state->switching = State::Switch{*sent, saving + 1, {}};
  Result<> done;
  if (runs) {
    done = co_await State::answer(state, *sent, 0);
    if (done && state->state == VmState::running) state->state = VmState::paused;
  }
  if (done) done = co_await State::answer(state, *sent, saving);
  if (!done) (void)co_await State::finish_switch(state);  // which was sent all the same
  co_return done;
}

Task<wire::MemoryFiles> QemuVm::memory() {
  auto state = state_;
  if (state->gone) co_return fail(ended_error(state->id));
  const QemuHost host = state->host;
  const std::string vm = state->id;
  auto open = [host, vm] { return host.warden->open_memory(vm); };
  co_return co_await host.pool->run(open);
}

Task<> QemuVm::set_cpu_weight(std::uint32_t weight) {
  auto state = state_;
  if (state->gone) co_return fail(ended_error(state->id));
  const QemuHost host = state->host;
  const std::string vm = state->id;
  auto set = [host, vm, weight] { return host.warden->set_cpu_weight(vm, weight); };
  co_return co_await host.pool->run(set);
}

Task<> QemuVm::prepare_disk(const Fd& overlay) {
  auto state = state_;
  CO_TRY(const Fd file, open_file(fmt::format("/proc/self/fd/{}", overlay.get()), O_RDWR));
  (void)co_await State::finish_switch(state);
  state->switching.reset();
  CO_TRY(state->disk_top, co_await qemu_top_node(state->asking()));  // here, where nothing stands still
  CO_TRY(state->next_disk, co_await qemu_add_overlay(state->asking(), file));
  co_return Result<>{};
}

Task<> QemuVm::switch_disk() {
  auto state = state_;
  if (state->switching) {
    auto done = co_await State::finish_switch(state);
    state->switching.reset();
    co_return done;
  }
  if (state->next_disk.node.empty())
    co_return fail(ErrorKind::conflict, "vm_state_conflict", "no next disk was prepared", "prepare it first");
  std::string next = state->next_disk.node;
  QmpCommand command = qemu_switch_overlay(state->disk_top, std::move(next));
  CO_TRY_VOID(co_await state->command(std::move(command.name), std::move(command.arguments)));
  state->next_disk = {};
  co_return Result<>{};
}

Task<> QemuVm::discard_disk() {
  auto state = state_;
  (void)co_await State::finish_switch(state);
  state->switching.reset();
  const DiskNode next = std::exchange(state->next_disk, {});
  if (next.node.empty()) co_return fail(ErrorKind::conflict, "vm_state_conflict", "no next disk was prepared");
  co_return co_await qemu_drop_overlay(state->asking(), next);
}

Task<> QemuVm::replace_generations(std::size_t base_files, std::vector<Fd> generations) {
  auto state = state_;
  std::vector<Fd> own;  // file descriptions that no other VMM shares
  for (const Fd& file : generations) {
    CO_TRY(Fd opened, open_file(fmt::format("/proc/self/fd/{}", file.get()), O_RDONLY));
    own.push_back(std::move(opened));
  }
  co_return co_await qemu_replace_generations(state->asking(), base_files, std::move(own));
}

QemuAsk QemuVm::asking() { return state_->asking(); }

Task<> QemuVm::close() {
  auto state = state_;
  if (state->gone) co_return Result<>{};
  state->destroyed = true;  // its end is no surprise
  CO_TRY_VOID(co_await state->command("quit"));
  const auto end = std::chrono::steady_clock::now() + kEndLimit;
  while (!state->gone && std::chrono::steady_clock::now() < end) co_await state->changed.wait_for(milliseconds(200));
  if (!state->gone)
    co_return fail(ErrorKind::unavailable, "vmm_does_not_end", fmt::format("process {} does not end", state->pid), "it is killed now");
  co_return Result<>{};
}

Task<> QemuVm::destroy() {
  auto state = state_;
  state->destroyed = true;
  state->qmp.reset();
  const QemuHost host = state->host;
  const std::string vm = state->id;
  // Its end is waited for here, on the loop: in the warden it would hold up every other call and a thread of the pool.
  if (!state->gone) {
    auto kill = [host, vm] { return host.warden->kill(vm); };
    CO_TRY_VOID(co_await host.pool->run(kill));
  }
  const auto end = std::chrono::steady_clock::now() + kEndLimit;
  while (!state->gone && std::chrono::steady_clock::now() < end) co_await state->changed.wait_for(milliseconds(200));
  if (!state->gone)
    co_return fail(ErrorKind::internal, "vmm_does_not_end", fmt::format("process {} did not end", state->pid), "look at it on the host");
  auto work = [host, vm] { return remove(host, vm); };
  co_return co_await host.pool->run(work);
}

asio::awaitable<void> QemuVm::ended() {
  auto state = state_;
  while (!state->gone && state->pidfd.is_open()) co_await state->changed.wait();
}

asio::awaitable<std::string> QemuVm::console_tail() {
  auto state = state_;
  co_await State::read_console(state);
  co_return state->tail();
}

Result<> QemuVm::remove(const QemuHost& host, const std::string& id) {
  TRY_VOID(host.warden->destroy(id));
  if (::unlink(host.control_socket(id).c_str()) != 0 && errno != ENOENT) return fail_errno(errno, "remove a control socket");
  return {};
}

}  // namespace space::vmm
