#include "egress/worker_process.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include "base/log.h"
#include "base/unix_socket.h"

extern char** environ;

namespace space::egress {
namespace {

constexpr std::chrono::seconds kPatience{10};
constexpr int kInARow = 64;  // messages of one worker; then the others' have their turn

tl::unexpected<Error> lost() {
  return fail(ErrorKind::unavailable, "worker_lost", "the tenant's worker of the gateway ended; a new one is started",
              "try again in a moment");
}

}  // namespace

Result<pid_t> spawn_this_program(Fd channel, log::Level log_level) {
  static constexpr const char* kLevels[] = {"debug", "info", "warn", "error"};
  std::string name = "space", role = "egress-worker", level = kLevels[static_cast<int>(log_level)];
  char* argv[] = {name.data(), role.data(), level.data(), nullptr};
  char* environment[] = {nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, channel.get(), 3);
  pid_t pid = 0;
  // dup2 onto itself clears close-on-exec too (posix_spawn_file_actions_adddup2(3p)).
  const int error = ::posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, argv, environment);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return fail_errno(error, "start a worker");
  return pid;
}

Result<std::shared_ptr<WorkerProcess>> WorkerProcess::start(asio::any_io_executor executor, const Spawn& spawn_worker, Heard heard) {
  TRY(auto pair, seqpacket_pair());
  const int bytes = 1 << 20;
  for (const Fd* end : {&pair.first, &pair.second}) ::setsockopt(end->get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  TRY(auto channel, Channel::make(executor, std::move(pair.first)));
  TRY(const pid_t pid, spawn_worker(std::move(pair.second)));
  std::shared_ptr<WorkerProcess> process(new WorkerProcess(executor, std::move(channel), pid, std::move(heard)));
  spawn(executor, [](std::shared_ptr<WorkerProcess> self) -> asio::awaitable<void> { co_await self->listen(); }(process));
  return process;
}

WorkerProcess::WorkerProcess(asio::any_io_executor executor, std::unique_ptr<Channel> channel, pid_t pid, Heard heard)
    : executor_(executor), channel_(std::move(channel)), pid_(pid), heard_(std::move(heard)), end_signal_(executor) {}

WorkerProcess::~WorkerProcess() {
  if (!ended_) end();
}

void WorkerProcess::end() {
  if (!ended_) ::kill(pid_, SIGKILL);
}

asio::awaitable<void> WorkerProcess::listen() {
  for (int turn = 1;; ++turn) {
    if (turn % kInARow == 0) co_await asio::post(executor_, asio::use_awaitable);
    auto message = co_await channel_->receive();
    if (!message) {
      if (message.error().code != "peer_closed")
        log::error("egress.worker_spoke_nonsense", {{"pid", std::int64_t{pid_}}, {"error", message.error()}});
      break;
    }
    const auto* type = message->body.if_contains("type");
    const auto* call = message->body.if_contains("call");
    if (type && type->is_string() && type->get_string() == "done") {
      if (!call || !call->is_int64()) continue;
      const auto found = calls_.find(call->get_int64());
      if (found == calls_.end()) continue;
      const auto waiting = found->second;
      calls_.erase(found);
      const auto* error = message->body.if_contains("error");
      if (error && error->is_object()) {
        const auto text = [&](std::string_view key) {
          const auto* value = error->get_object().if_contains(key);
          return value && value->is_string() ? std::string(value->get_string()).substr(0, 512) : std::string("unknown");
        };
        waiting->answer = fail(ErrorKind::internal, text("code"), text("message"));
      } else {
        waiting->answer = std::move(message->body);
      }
      waiting->answered.notify_all();
    } else {
      heard_(message->body);
    }
  }
  // Without its channel it is of no use. Whatever it had said was read above.
  channel_->close();
  ::kill(pid_, SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, WNOHANG) == 0) co_await sleep_for(std::chrono::milliseconds(5));
  ended_ = true;
  for (auto& [id, waiting] : std::exchange(calls_, {})) {
    waiting->answer = lost();
    waiting->answered.notify_all();
  }
  end_signal_.notify_all();
}

void WorkerProcess::tell(Message message) {
  message.body["call"] = 0;
  if (!channel_->send(std::move(message))) end();
}

Task<json::object> WorkerProcess::call(Message message) {
  const auto self = shared_from_this();
  if (ended_) co_return lost();
  const auto waiting = std::make_shared<Call>(executor_);
  const std::int64_t id = next_call_++;
  message.body["call"] = id;
  calls_.emplace(id, waiting);
  if (!channel_->send(std::move(message))) end();
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (!waiting->answer) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0) break;
    (void)co_await waiting->answered.wait_for(left);
  }
  calls_.erase(id);
  if (waiting->answer) co_return std::move(*waiting->answer);
  log::error("egress.worker_silent", {{"pid", std::int64_t{pid_}}});
  end();
  co_return lost();
}

asio::awaitable<void> WorkerProcess::ended() {
  const auto self = shared_from_this();
  while (!ended_) co_await end_signal_.wait();
}

}  // namespace space::egress
