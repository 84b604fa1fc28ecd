#include "vmm/qmp.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <deque>
#include <fmt/format.h>
#include <sys/socket.h>

#include "base/log.h"

namespace space::vmm {
namespace {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;
constexpr std::ptrdiff_t kMaxAbandoned = 16;

// One try to send, with at most one descriptor beside the first byte. -1 with errno as sendmsg(2).
ssize_t send_some(int socket, std::string_view bytes, int pass) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (pass >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof pass);
    std::memcpy(CMSG_DATA(header), &pass, sizeof pass);
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// A command that was sent.
struct Call {
  Call(asio::any_io_executor executor, std::uint64_t number, std::string command, SteadyClock::time_point limit)
      : id(number), name(std::move(command)), end(limit), woken(executor) {}
  std::uint64_t id;
  std::string name;
  SteadyClock::time_point end;
  asio::steady_timer woken;  // cancelled when there is an answer, or none will come: one wait of the loop, no more
  std::optional<Result<json::value>> answer;
  bool abandoned = false;  // whoever asked has gone away: its answer is dropped
};

}  // namespace

// Shared by the client, its reader and every call under way, so that each may end in any order.
struct QmpClient::State {
  State(asio::any_io_executor executor, EventHandler handler, QmpLimits l)
      : socket(executor), changed(executor), on_event(std::move(handler)), limits(l) {}

  asio::local::stream_protocol::socket socket;
  Signal changed;
  EventHandler on_event;
  QmpLimits limits;
  std::optional<Error> failure;
  std::optional<std::string> version;
  bool out_of_band = false;  // offered by the greeting
  bool sending = false;
  std::uint64_t next_id = 1;
  // Sent and not answered, in the order of sending, in which the VMM answers too: it runs one after another.
  std::deque<std::shared_ptr<Call>> under_way;
  SteadyClock::time_point second_began = SteadyClock::now();
  std::size_t messages_this_second = 0;

  void give_up(Error error) {
    if (failure) return;
    failure = std::move(error);
    boost::system::error_code ignored;
    socket.close(ignored);
    changed.notify_all();
    for (const auto& call : under_way) call->woken.cancel();
    if (auto handler = std::exchange(on_event, {})) handler(nullptr);
  }
  void give_up(ErrorKind kind, std::string_view code, std::string message) {
    give_up(Error{kind, std::string(code), std::move(message), "delete the sandbox and create another"});
  }

  void count_message() {
    const auto now = SteadyClock::now();
    if (now - second_began >= std::chrono::seconds(1)) {
      second_began = now;
      messages_this_second = 0;
    }
    if (++messages_this_second > limits.messages_per_second)
      give_up(ErrorKind::unavailable, "qmp_flood", "the VMM sends more messages than anybody asked for");
  }

  bool free() const {
    return !sending && std::all_of(under_way.begin(), under_way.end(), [](const auto& call) { return call->abandoned; });
  }

  // Somebody's wait ended without an answer, which may still come.
  void abandon(Call& call) {
    if (call.answer || std::exchange(call.abandoned, true)) return;
    if (std::count_if(under_way.begin(), under_way.end(), [](const auto& one) { return one->abandoned; }) > kMaxAbandoned)
      give_up(ErrorKind::unavailable, "qmp_closed", "a command to the VMM was broken off");
    changed.notify_all();
  }

  // An error without an id is of a command that the VMM could not even read: it answers in order, so that is the oldest.
  void settle(std::optional<std::uint64_t> id, Result<json::value> result) {
    if (under_way.empty() || (id && *id != under_way.front()->id))
      return give_up(ErrorKind::unavailable, "qmp_protocol", "the VMM answered a command that was not asked, or not its turn");
    const auto call = std::move(under_way.front());
    under_way.pop_front();
    if (!call->abandoned) call->answer = std::move(result);
    call->woken.cancel();
    if (free()) changed.notify_all();
  }

  void take(QmpMessage message) {
    if (auto* hello = std::get_if<QmpGreeting>(&message)) {
      if (version) return give_up(ErrorKind::unavailable, "qmp_protocol", "the VMM greeted twice");
      version = std::move(hello->version);
      out_of_band = hello->out_of_band;
      changed.notify_all();
    } else if (!version) {
      give_up(ErrorKind::unavailable, "qmp_protocol", "the VMM spoke before its greeting");
    } else if (auto* value = std::get_if<QmpReturn>(&message)) {
      settle(value->id, std::move(value->value));
    } else if (auto* error = std::get_if<QmpError>(&message)) {
      settle(error->id, fail(ErrorKind::unavailable, "qmp_error", fmt::format("{} ({})", error->description, error->error_class)));
    } else if (on_event) {
      auto handler = on_event;  // the handler may end this client
      handler(&std::get<QmpEvent>(message));
    }
  }

  static asio::awaitable<void> read(std::shared_ptr<State> self) {
    std::array<char, 16384> buffer;
    QmpLines lines;
    while (!self->failure) {
      auto [error, n] = co_await self->socket.async_read_some(asio::buffer(buffer), kAsTuple);
      if (self->failure) co_return;
      if (error) {
        self->give_up(ErrorKind::unavailable, "qmp_closed", "the VMM closed its control connection");
        co_return;
      }
      auto some = lines.feed({buffer.data(), n});
      if (!some) self->give_up(std::move(some).error());
      for (std::size_t i = 0; some && i < some->size() && !self->failure; ++i) {
        self->count_message();
        auto message = parse_qmp_message((*some)[i]);
        if (!message)
          self->give_up(std::move(message).error());
        else if (!self->failure)
          self->take(std::move(*message));
      }
    }
  }

  // Waits until `done()` or the failure of the connection; false when the time is over first.
  template <class F>
  asio::awaitable<bool> wait_until(F done, SteadyClock::time_point end) {
    while (!failure && !done()) {
      const auto left = std::chrono::ceil<milliseconds>(end - SteadyClock::now());
      if (left <= milliseconds(0)) co_return false;
      co_await changed.wait_for(left);
    }
    co_return true;
  }

  asio::awaitable<bool> send(std::string_view bytes, int pass, SteadyClock::time_point end) {
    while (!bytes.empty() && !failure) {
      const ssize_t n = send_some(socket.native_handle(), bytes, pass);
      if (n >= 0) {
        bytes.remove_prefix(static_cast<std::size_t>(n));
        pass = -1;
      } else if (errno == EAGAIN || errno == ENOBUFS) {
        // A peer that does not read: nothing but the time limit ends this. Polling is enough, commands are shorter than a buffer.
        if (SteadyClock::now() >= end) co_return false;
        co_await sleep_for(milliseconds(5));
      } else if (errno != EINTR) {
        give_up(ErrorKind::unavailable, "qmp_closed", "the VMM closed its control connection");
      }
    }
    co_return true;
  }
};

// What one caller sent in its turn.
class QmpClient::Calls {
 public:
  explicit Calls(std::shared_ptr<State> state) : state_(std::move(state)) {}
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;
  // Also when the caller's coroutine is destroyed in the middle.
  ~Calls() {
    for (const auto& call : list_) state_->abandon(*call);
  }

  static Error late(std::string_view command) {
    return {ErrorKind::deadline_exceeded, "qmp_timeout", fmt::format("the VMM did not answer `{}` in time", command),
            "delete the sandbox and create another"};
  }

  // `limited`: it is the caller's own limit that ends at `end`.
  Task<> send(std::vector<QmpCommand> commands, const Fd* pass, SteadyClock::time_point end, bool limited) {
    assert(!commands.empty() && commands.size() <= kMostTogether);
    const auto state = state_;
    const bool free = co_await state->wait_until([&] { return state->free(); }, end);
    if (state->failure) co_return fail(*state->failure);
    if (!free)
      co_return fail(ErrorKind::deadline_exceeded, "qmp_timeout", fmt::format("other commands kept the VMM from `{}`", commands[0].name));
    std::string lines;
    for (QmpCommand& command : commands) {
      auto call = std::make_shared<Call>(state->socket.get_executor(), state->next_id++, command.name, end);
      json::object message{{"execute", command.name}, {"id", call->id}};
      if (!command.arguments.empty()) message["arguments"] = std::move(command.arguments);
      lines += json::serialize(message) + "\n";
      list_.push_back(call);
      state->under_way.push_back(std::move(call));
    }
    // Half a command would make the next one nonsense.
    struct Sending {
      State& state;
      bool whole = false;
      ~Sending() {
        state.sending = false;
        if (!whole) state.give_up(ErrorKind::unavailable, "qmp_closed", "a command to the VMM was broken off");
      }
    } sending{*state};
    state->sending = true;
    sending.whole = co_await state->send(lines, pass ? pass->get() : -1, end);
    if (!sending.whole) {
      if (!limited) state->give_up(late(commands[0].name));
      co_return fail(late(commands[0].name));
    }
    co_return Result<>{};
  }

  Task<json::value> answer(std::size_t number, bool limited) {
    const auto state = state_;
    const auto call = list_.at(number);
    while (!call->answer && !state->failure && SteadyClock::now() < call->end) {
      call->woken.expires_at(call->end);
      co_await call->woken.async_wait(kAsTuple);
    }
    if (call->answer) {
      auto answer = std::move(*call->answer);
      if (!answer) answer.error().message = fmt::format("the VMM refused `{}`: {}", call->name, answer.error().message);
      co_return answer;
    }
    if (!state->failure && limited) co_return fail(late(call->name));
    if (!state->failure) state->give_up(late(call->name));
    co_return fail(*state->failure);
  }

 private:
  std::shared_ptr<State> state_;
  std::vector<std::shared_ptr<Call>> list_;
};

QmpClient::QmpClient(std::shared_ptr<State> state) : state_(std::move(state)) {}

QmpClient::~QmpClient() {
  state_->on_event = {};
  state_->give_up(ErrorKind::cancelled, "qmp_closed", "the control connection was closed from this side");
}

const std::string& QmpClient::version() const {
  static const std::string none;
  return state_->version ? *state_->version : none;
}

bool QmpClient::usable() const { return !state_->failure; }

Task<std::unique_ptr<QmpClient>> QmpClient::open(Fd socket, EventHandler on_event, QmpLimits limits) {
  auto executor = co_await asio::this_coro::executor;
  auto state = std::make_shared<State>(executor, std::move(on_event), limits);
  boost::system::error_code error;
  state->socket.assign(asio::local::stream_protocol(), socket.get(), error);
  if (!error) (void)socket.release();
  if (!error) state->socket.non_blocking(true, error);
  if (error) co_return fail_errno(error.value(), "use the VMM's control socket");
  std::unique_ptr<QmpClient> client(new QmpClient(state));
  spawn(executor, State::read(state));
  const auto end = SteadyClock::now() + limits.greeting;
  const bool greeted = co_await state->wait_until([&] { return state->version.has_value(); }, end);
  if (!greeted) state->give_up(ErrorKind::deadline_exceeded, "qmp_timeout", "the VMM did not greet in time");
  if (state->failure) co_return fail(*state->failure);
  const auto left = std::chrono::ceil<milliseconds>(end - SteadyClock::now());
  // With out-of-band commands, which are not used, the VMM reads the next command while it works on one: it reads a byte at a time.
  json::object how;
  if (state->out_of_band) how["enable"] = json::array{"oob"};
  CO_TRY_VOID(co_await client->execute("qmp_capabilities", std::move(how), nullptr, std::max(left, milliseconds(1))));
  co_return client;
}

Task<json::value> QmpClient::execute(std::string command, json::object arguments, const Fd* pass, std::optional<milliseconds> limit) {
  const auto end = SteadyClock::now() + limit.value_or(state_->limits.answer);
  const auto calls = std::make_shared<Calls>(state_);
  std::vector<QmpCommand> commands;
  commands.push_back({std::move(command), std::move(arguments)});
  CO_TRY_VOID(co_await calls->send(std::move(commands), pass, end, limit.has_value()));
  co_return co_await calls->answer(0, limit.has_value());
}

Task<QmpClient::Series> QmpClient::send_together(std::vector<QmpCommand> commands) {
  const auto end = SteadyClock::now() + state_->limits.answer;
  auto calls = std::make_shared<Calls>(state_);
  CO_TRY_VOID(co_await calls->send(std::move(commands), nullptr, end, false));
  co_return Series(std::move(calls));
}

Task<json::value> QmpClient::Series::answer(std::size_t number) {
  const auto calls = calls_;
  co_return co_await calls->answer(number, false);
}

}  // namespace space::vmm
