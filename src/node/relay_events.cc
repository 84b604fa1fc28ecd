#include <boost/asio/experimental/awaitable_operators.hpp>

#include <set>

#include "base/encoding.h"
#include "base/json.h"
#include "http/sse.h"
#include "node/feed.h"
#include "node/guest_error.h"
#include "node/open_stream.h"
#include "node/relay.h"

namespace space::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kEventLimit = 128 << 10;
constexpr milliseconds kKeepalive = seconds(10);
constexpr milliseconds kEventSilence = seconds(60);

using Names = std::set<std::string, std::less<>>;

// Pieces of the agent's event stream. An empty one is its end.
class Source {
 public:
  explicit Source(std::unique_ptr<http::ClientStream> stream) : stream_(std::move(stream)) {}
  Task<std::string> next() {
    CO_TRY(const std::size_t size, co_await stream_->read(piece_));
    co_return std::string(as_text(std::span(piece_).first(size)));
  }
  void cancel() { stream_->cancel(); }

 private:
  std::unique_ptr<http::ClientStream> stream_;
  std::array<std::byte, 16 << 10> piece_;
};

Result<std::string> rewritten(const std::vector<http::SseEvent>& events, const Names& names, const std::string& doing) {
  std::string text;
  for (const http::SseEvent& event : events) {
    auto data = parse_json(event.data, kEventLimit);
    if (!names.contains(event.event) || !data) return fail(agent_not_answering(doing, "an event is not understood"));
    text += http::format_sse({"", event.event, json::serialize(*data)});
  }
  return text;
}

Task<> pump(http::Exchange& exchange, std::shared_ptr<Sandbox> sandbox, std::shared_ptr<Source> source, Names names, std::string doing) {
  const auto executor = co_await asio::this_coro::executor;
  http::SseWriter out(exchange);
  http::SseReader reader(kEventLimit);
  Feed<std::string> feed(
      executor, [source] { return source->next(); }, [source] { source->cancel(); });
  for (milliseconds silent{0};;) {
    auto piece = co_await feed.next_for(kKeepalive);
    if (!piece) {
      silent = sandbox->record.state == SandboxState::paused ? milliseconds(0) : silent + kKeepalive;
      if (sandbox->gone || sandbox->removing || sandbox->record.state == SandboxState::ended) co_return fail(vm_gone());
      if (silent >= kEventSilence) co_return fail(agent_not_answering(doing, "no sign of life in time"));
      CO_TRY_VOID(co_await out.keepalive());
      continue;
    }
    silent = milliseconds(0);
    if (!*piece) co_return fail(guest_error(piece->error(), doing));
    if ((*piece)->empty()) co_return co_await out.finish();
    auto events = reader.feed(**piece);
    if (!events) co_return fail(agent_not_answering(doing, events.error().message));
    CO_TRY(const std::string text, rewritten(*events, names, doing));
    if (text.empty())
      CO_TRY_VOID(co_await out.keepalive());
    else
      CO_TRY_VOID(co_await exchange.write(as_bytes(text)));
  }
}

}  // namespace

Task<> relay_events(http::Exchange& exchange, std::shared_ptr<Sandbox> sandbox, AgentTarget target, std::vector<std::string_view> names,
                    std::string doing) {
  using namespace asio::experimental::awaitable_operators;
  Names known;
  for (std::string_view name : names) known.emplace(name);
  http::Request request;
  request.target = target.text();
  request.headers.set("Accept", "text/event-stream");
  CO_TRY(const auto agent, sandbox->agent());
  CO_TRY(auto stream, co_await ask_agent(sandbox->machine, agent->http().open(std::move(request)), seconds(15), doing));
  CO_TRY(const http::Response head, co_await ask_agent(sandbox->machine, stream->head(), seconds(30), doing));
  if (head.status != 200) {
    auto body = co_await stream->read_all(kErrorAnswer);
    co_return fail(guest_error(body ? http::error_from_response(head.status, *body) : body.error(), doing));
  }
  stream->set_body_timeout(std::chrono::hours(24 * 365));  // the pump keeps time: a paused guest is silent with good reason
  const auto source = std::make_shared<Source>(std::move(stream));
  const OpenStream open(sandbox, [sandbox = sandbox.get(), source] {
    if (sandbox->record.state != SandboxState::paused) source->cancel();
  });
  http::SseWriter out(exchange);
  Result<> done = co_await out.start();
  if (done) {
    auto end = co_await (pump(exchange, sandbox, source, std::move(known), doing) || exchange.disconnected());
    done = fail(reader_gone());
    if (end.index() == 0) done = std::get<0>(std::move(end));
  }
  co_return done;
}

}  // namespace space::node
