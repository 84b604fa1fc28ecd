#include "vmm/qmp.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <cerrno>
#include <cstring>
#include <deque>
#include <fmt/format.h>
#include <set>
#include <sys/socket.h>

#include "base/log.h"

namespace space::vmm {
namespace {

constexpr auto kAsTuple = asio::as_tuple(asio::use_awaitable);
using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;
constexpr std::size_t kMaxAbandoned = 16;

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
  bool busy = false;                  // a command is under way
  std::uint64_t next_id = 1;
  std::optional<std::uint64_t> waiting_for;
  std::optional<Result<json::value>> answer;
  std::set<std::uint64_t> abandoned;  // commands whose caller went away; their answers are dropped
  SteadyClock::time_point second_began = SteadyClock::now();
  std::size_t messages_this_second = 0;

  void give_up(Error error) {
    if (failure) return;
    failure = std::move(error);
    boost::system::error_code ignored;
    socket.close(ignored);
    changed.notify_all();
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

  void settle(std::optional<std::uint64_t> id, Result<json::value> result) {
    if (id && abandoned.erase(*id) == 1) return;
    // An error without an id answers the command under way, if there is one: the VMM could not even read it.
    if (!waiting_for || (id && *id != *waiting_for))
      return give_up(ErrorKind::unavailable, "qmp_protocol", "the VMM answered a command that was not asked");
    waiting_for.reset();
    answer = std::move(result);
    changed.notify_all();
  }

  void take(QmpMessage message) {
    if (auto* hello = std::get_if<QmpGreeting>(&message)) {
      if (version) return give_up(ErrorKind::unavailable, "qmp_protocol", "the VMM greeted twice");
      version = std::move(hello->version);
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
  CO_TRY_VOID(co_await client->execute("qmp_capabilities", {}, nullptr, std::max(left, milliseconds(1))));
  co_return client;
}

Task<json::value> QmpClient::execute(std::string command, json::object arguments, const Fd* pass, std::optional<milliseconds> limit) {
  auto state = state_;
  const auto end = SteadyClock::now() + limit.value_or(state->limits.answer);
  const bool free = co_await state->wait_until([&] { return !state->busy; }, end);
  if (state->failure) co_return fail(*state->failure);
  if (!free) co_return fail(ErrorKind::deadline_exceeded, "qmp_timeout", fmt::format("other commands kept the VMM from `{}`", command));

  const std::uint64_t id = state->next_id++;
  json::object message{{"execute", command}, {"id", id}};
  if (!arguments.empty()) message["arguments"] = std::move(arguments);
  const std::string line = json::serialize(message) + "\n";
  state->busy = true;
  state->waiting_for = id;
  state->answer.reset();
  // Also runs when the caller's coroutine is destroyed in the middle.
  struct Turn {
    std::shared_ptr<State> state;
    std::uint64_t id;
    bool sent = false;
    ~Turn() {
      state->busy = false;
      if (state->waiting_for == id) {
        state->waiting_for.reset();
        state->abandoned.insert(id);
        if (!sent || state->abandoned.size() > kMaxAbandoned)
          state->give_up(ErrorKind::unavailable, "qmp_closed", "a command to the VMM was broken off");
      }
      state->changed.notify_all();
    }
  } turn{state, id};

  turn.sent = co_await state->send(line, pass ? pass->get() : -1, end);
  const bool in_time = turn.sent && co_await state->wait_until([&] { return state->answer.has_value(); }, end);
  if (!in_time) {
    Error late{ErrorKind::deadline_exceeded, "qmp_timeout", fmt::format("the VMM did not answer `{}` in time", command),
               "delete the sandbox and create another"};
    if (limit) co_return fail(std::move(late));
    state->give_up(std::move(late));
  }
  if (state->answer) {
    auto answer = std::move(*state->answer);
    state->answer.reset();
    if (!answer) answer.error().message = fmt::format("the VMM refused `{}`: {}", command, answer.error().message);
    co_return answer;
  }
  co_return fail(*state->failure);
}

}  // namespace space::vmm
