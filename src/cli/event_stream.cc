#include "cli/event_stream.h"

#include <array>
#include <charconv>

#include "base/encoding.h"

namespace space::cli {
namespace {

// What another connection may mend: the server is away or restarts, or the way to it broke.
bool may_pass(const Error& error) {
  switch (error.kind) {
    case ErrorKind::unavailable:
    case ErrorKind::deadline_exceeded:
    case ErrorKind::resource_exhausted:
    case ErrorKind::internal:
      return true;
    default:
      return false;
  }
}

bool take_number(std::string_view& text, std::uint64_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc{}) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool parse_id(std::string_view text, std::array<std::uint64_t, 2>& out) {
  out = {};
  if (!take_number(text, out[1])) return false;
  if (text.starts_with('.')) {
    out[0] = out[1];
    text.remove_prefix(1);
    if (!take_number(text, out[1])) return false;
  }
  return text.empty();
}

}  // namespace

json::object event_object(const http::SseEvent& event) {
  auto data = parse_json_object(event.data, 4 << 20);
  return {{"id", event.id}, {"event", event.event}, {"data", data ? json::value(std::move(*data)) : json::value(event.data)}};
}

std::optional<int> compare_event_ids(std::string_view a, std::string_view b) {
  std::array<std::uint64_t, 2> left, right;
  if (!parse_id(a, left) || !parse_id(b, right)) return std::nullopt;
  return left < right ? -1 : left > right ? 1 : 0;
}

EventStream::EventStream(ApiClient& api, std::string target, EventStreamOptions options)
    : api_(api), target_(std::move(target)), options_(std::move(options)) {}

void EventStream::cancel() {
  cancelled_ = true;
  if (stream_) stream_->cancel();
}

Task<std::optional<http::SseEvent>> EventStream::next() {
  auto lost_since = std::chrono::steady_clock::now();
  std::chrono::milliseconds pause{50};
  while (ready_.empty()) {
    if (over_) co_return std::optional<http::SseEvent>();
    if (cancelled_) co_return fail(ErrorKind::cancelled, "cancelled", "the stream was left");
    Result<> moved;
    if (stream_)
      moved = co_await read_more();
    else
      moved = co_await connect();
    if (moved) {
      lost_since = std::chrono::steady_clock::now();
      continue;
    }
    stream_.reset();
    if (cancelled_) continue;
    if (!may_pass(moved.error()) || std::chrono::steady_clock::now() - lost_since > options_.patience)
      co_return tl::unexpected(moved.error());
    co_await sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(2'000));
  }
  std::optional<http::SseEvent> event = std::move(ready_.front());
  ready_.pop_front();
  if (!event->id.empty()) options_.last_id = event->id;
  if (!options_.last_event.empty() && event->event == options_.last_event) over_ = true;
  co_return event;
}

Task<> EventStream::connect() {
  http::Request request = api_.request("GET", target_);
  request.headers.set("Accept", "text/event-stream");
  if (!options_.last_id.empty()) request.headers.set("Last-Event-ID", options_.last_id);
  auto stream = co_await api_.client_->open(std::move(request));
  if (!stream) co_return fail(api_.explain(stream.error()));
  stream_ = std::move(*stream);
  auto head = co_await stream_->head();
  if (!head) co_return fail(api_.explain(head.error()));
  if (head->status != 200) {
    auto body = co_await stream_->read_all(64 << 10);
    co_return fail(http::error_from_response(head->status, body ? *body : ""));
  }
  stream_->set_body_timeout(options_.silence);
  reader_.emplace();
  ++reconnects_;
  co_return Result<>();
}

Task<> EventStream::read_more() {
  std::array<std::byte, 64 << 10> piece;
  auto count = co_await stream_->read(piece);
  if (!count) co_return tl::unexpected(count.error());
  if (*count == 0) co_return fail(ErrorKind::unavailable, "stream_ended", "the server ended the stream early");
  auto events = reader_->feed(as_text(std::span<const std::byte>(piece).first(*count)));
  if (!events) co_return tl::unexpected(events.error());
  for (http::SseEvent& event : *events)
    if (!seen_before(event)) ready_.push_back(std::move(event));
  co_return Result<>();
}

bool EventStream::seen_before(const http::SseEvent& event) const {
  const std::string& last = ready_.empty() ? options_.last_id : ready_.back().id;
  if (event.id.empty() || last.empty()) return false;
  const auto order = compare_event_ids(event.id, last);
  return order && *order <= 0;
}

}  // namespace space::cli
