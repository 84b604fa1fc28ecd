#include "node/attach.h"

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <charconv>
#include <fmt/format.h>

#include "base/encoding.h"
#include "base/json.h"
#include "http/sse.h"
#include "node/feed.h"
#include "node/open_stream.h"

namespace space::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kKeepalive = seconds(10);
constexpr milliseconds kOpenLimit = seconds(30);
constexpr int kMostReopened = 2;  // in a row, without a frame between: then the agent is not answering

using Stream = std::unique_ptr<wire::ProcessStream>;

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return number;
}

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) number = number << 8 | static_cast<unsigned char>(bytes[i]);
  return number;
}

tl::unexpected<Error> broken_frame() {
  return fail(ErrorKind::unavailable, "agent_protocol_error", "an event of the process is malformed",
              "delete the sandbox: its agent cannot be trusted to work");
}

// The agent says where its window lies in the tail of its message (wire/agent_client.h).
std::optional<http::Response> window_answer(const Error& error, std::uint64_t epoch) {
  if (error.code != "outside_window") return std::nullopt;
  const auto value = [&](std::string_view name) -> std::optional<std::uint64_t> {
    const auto at = error.message.rfind(name);
    if (at == std::string::npos) return std::nullopt;
    const std::string_view rest = std::string_view(error.message).substr(at + name.size());
    return parse_number(rest.substr(0, rest.find_first_not_of("0123456789")));
  };
  const auto first = value("first="), last = value("last=");
  if (!first || !last) return std::nullopt;
  return outside_window(epoch, *first, *last);
}

class Attachment {
 public:
  Attachment(http::Exchange& exchange, std::shared_ptr<Sandbox> sandbox, std::uint32_t process, std::uint64_t after)
      : exchange_(exchange), out_(exchange), sandbox_(std::move(sandbox)), process_(process), last_(after) {}

  Task<> run() {
    using namespace asio::experimental::awaitable_operators;
    auto stream = co_await open();
    if (!stream) {
      if (auto answer = window_answer(stream.error(), sandbox_->record.epoch)) co_return co_await exchange_.reply(std::move(*answer));
      co_return fail(std::move(stream).error());
    }
    CO_TRY_VOID(co_await out_.start());
    // A reader that goes away ends all of it, also while nothing is to be sent: the keepalives tell where its end alone does not.
    auto end = co_await (pump(std::move(*stream)) || exchange_.disconnected());
    if (end.index() == 1) co_return fail(reader_gone());
    co_return std::get<0>(std::move(end));
  }

 private:
  Task<Stream> open() {
    CO_TRY(const auto agent, sandbox_->agent());
    co_return co_await ask_agent(sandbox_->machine, agent->attach(process_, last_), kOpenLimit, "attach to the command");
  }

  Task<> pump(Stream stream) {
    for (int reopened = 0;;) {
      const std::uint64_t before = last_;
      auto exited = co_await follow(std::move(stream));
      if (exited && *exited) co_return co_await out_.finish();
      if (last_ != before) reopened = 0;
      if (!exited && exited.error().code == "client_gone") co_return fail(std::move(exited).error());
      if (sandbox_->record.state == SandboxState::running && !sandbox_->resting && ++reopened > kMostReopened)
        co_return fail(guest_error(exited.error(), "stream the command's output"));
      CO_TRY_VOID(co_await running_again());
      CO_TRY(stream, co_await open());
    }
  }

  // Sends what comes until the process has ended (true) or the stream breaks off (the error).
  Task<bool> follow(Stream stream) {
    const std::shared_ptr<wire::ProcessStream> shared = std::move(stream);
    const auto executor = co_await asio::this_coro::executor;
    const OpenStream open(sandbox_, [shared] { shared->cancel(); });
    Feed<std::vector<wire::Frame>> feed(
        executor, [shared] { return shared->next(); }, [shared] { shared->cancel(); });
    for (;;) {
      auto frames = co_await feed.next_for(kKeepalive);
      if (!frames) {
        CO_TRY_VOID(to_client(co_await out_.keepalive()));
        continue;
      }
      if (!*frames) co_return fail(std::move(*frames).error());
      if ((*frames)->empty()) co_return true;
      std::string text;
      for (const wire::Frame& frame : **frames) {
        CO_TRY(const std::string event, event_text(frame, sandbox_->record.epoch));
        text += event;
      }
      CO_TRY_VOID(to_client(co_await exchange_.write(as_bytes(text))));
      last_ = (*frames)->back().sequence;
    }
  }

  Task<> running_again() {
    for (;;) {
      if (auto agent = sandbox_->agent(); agent)
        co_return Result<>{};
      else if (!sandbox_->comes_back())
        co_return fail(std::move(agent).error());
      if (!co_await sandbox_->changed.wait_for(kKeepalive)) CO_TRY_VOID(to_client(co_await out_.keepalive()));
    }
  }

  static Result<> to_client(Result<> sent) {
    if (!sent) sent.error().code = "client_gone";
    return sent;
  }

  http::Exchange& exchange_;
  http::SseWriter out_;
  std::shared_ptr<Sandbox> sandbox_;
  std::uint32_t process_;
  std::uint64_t last_;
};

}  // namespace

std::optional<EventPosition> parse_position(std::string_view text) {
  const auto dot = text.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const auto epoch = parse_number(text.substr(0, dot)), sequence = parse_number(text.substr(dot + 1));
  if (!epoch || !sequence) return std::nullopt;
  return EventPosition{*epoch, *sequence};
}

std::string position_text(std::uint64_t epoch, std::uint64_t sequence) { return fmt::format("{}.{}", epoch, sequence); }

Result<std::string> event_text(const wire::Frame& frame, std::uint64_t epoch) {
  const auto event = [&](std::string_view name, std::string data) {
    return http::format_sse({position_text(epoch, frame.sequence), std::string(name), std::move(data)});
  };
  const auto bytes = [&](std::string_view name) {
    return event(name, fmt::format(R"({{"data":"{}"}})", base64_encode(as_bytes(frame.payload))));
  };
  switch (frame.type) {
    case wire::FrameType::start:
      if (frame.payload.size() != 4) return broken_frame();
      return event("start", fmt::format(R"({{"pid":{}}})", little_endian(frame.payload)));
    case wire::FrameType::stdout_bytes:
      return bytes("stdout");
    case wire::FrameType::stderr_bytes:
      return bytes("stderr");
    case wire::FrameType::pty_bytes:
      return bytes("pty");
    case wire::FrameType::exit: {
      TRY(const wire::ProcessExit exit, wire::decode_exit(frame.payload));
      return event("exit", fmt::format(R"({{"code":{},"signal":{},"timed_out":{},"core_dumped":{}}})", exit.code, exit.signal,
                                       exit.timed_out, exit.core_dumped));
    }
    case wire::FrameType::dropped:
      if (frame.payload.size() != 8) return broken_frame();
      return event("dropped", fmt::format(R"({{"bytes":{}}})", little_endian(frame.payload)));
    case wire::FrameType::keepalive:
      return std::string(":\n\n");
  }
  return broken_frame();
}

http::Response outside_window(std::uint64_t epoch, std::uint64_t first, std::uint64_t last) {
  const Error error{ErrorKind::conflict, "outside_window", "the events after that id are not all there any more",
                    "attach from an id inside the window (first to last), and take what is missing as lost"};
  http::Response response = http::problem(error);
  if (auto body = parse_json_object(response.body)) {
    (*body)["first"] = position_text(epoch, first);
    (*body)["last"] = position_text(epoch, last);
    response.body = json::serialize(*body);
  }
  return response;
}

Task<> attach(http::Exchange& exchange, std::shared_ptr<Sandbox> sandbox, std::uint32_t process, std::uint64_t after) {
  Attachment attachment(exchange, std::move(sandbox), process, after);
  co_return co_await attachment.run();
}

}  // namespace space::node
