#include "http/sse.h"

#include <boost/asio/buffer.hpp>

#include "base/encoding.h"

namespace space::http {

std::string format_sse(const SseEvent& event) {
  std::string text;
  text.reserve(event.data.size() + event.id.size() + event.event.size() + 32);
  if (!event.id.empty()) text.append("id: ").append(event.id).append("\n");
  if (!event.event.empty() && event.event != "message") text.append("event: ").append(event.event).append("\n");
  // CR, LF and CRLF all end a line for a reader; a data line for each keeps the text, with LF in their place.
  std::string_view rest = event.data;
  for (;;) {
    const std::size_t end = rest.find_first_of("\r\n");
    text.append("data: ").append(rest.substr(0, end)).append("\n");
    if (end == rest.npos) break;
    const bool crlf = rest[end] == '\r' && end + 1 < rest.size() && rest[end + 1] == '\n';
    rest.remove_prefix(end + (crlf ? 2 : 1));
  }
  text += '\n';
  return text;
}

Task<> SseWriter::start(Headers extra) {
  extra.set("Content-Type", "text/event-stream");
  extra.set("Cache-Control", "no-store");
  co_return co_await exchange_.start(200, std::move(extra));
}

Task<> SseWriter::send(const SseEvent& event) {
  if (event.id.find_first_of(std::string_view("\r\n\0", 3)) != std::string::npos || event.event.find_first_of("\r\n") != std::string::npos)
    co_return fail(ErrorKind::internal, "bad_event", "the id or name of an event holds a line break");
  const std::string text = format_sse(event);
  co_return co_await exchange_.write(as_bytes(text));
}

Task<> SseWriter::keepalive() { co_return co_await exchange_.write(as_bytes(std::string_view(":\n\n"))); }

Task<> SseWriter::finish() { co_return co_await exchange_.finish(); }

Result<std::vector<SseEvent>> SseReader::feed(std::string_view bytes) {
  const auto too_long = [this] {
    failed_ = true;
    return fail(ErrorKind::too_large, "event_too_large", "the other end sent an event that is longer than allowed here");
  };
  if (failed_) return too_long();
  std::vector<SseEvent> events;
  while (!bytes.empty()) {
    if (last_was_cr_) {
      last_was_cr_ = false;
      if (bytes.front() == '\n') {
        bytes.remove_prefix(1);
        continue;
      }
    }
    const std::size_t end = bytes.find_first_of("\r\n");
    const std::string_view part = bytes.substr(0, end);
    if (part.size() > limit_ || pending_.size() + part.size() > limit_) return too_long();
    if (end == bytes.npos) {
      pending_ += part;
      break;
    }
    last_was_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    Result<> done;
    if (pending_.empty()) {
      done = line(part, events);
    } else {
      pending_ += part;
      done = line(pending_, events);
      pending_.clear();
    }
    if (!done) return too_long();
  }
  return events;
}

Result<> SseReader::line(std::string_view text, std::vector<SseEvent>& out) {
  if (std::exchange(first_, false) && text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  if (text.empty()) {
    // Only a whole event moves the position from which a reader goes on.
    if (has_id_) last_id_ = current_.id;
    if (has_data_) {
      if (current_.event.empty()) current_.event = "message";
      out.push_back(std::move(current_));
    }
    current_ = SseEvent();
    has_data_ = has_id_ = false;
    return {};
  }
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  std::string_view value = colon == text.npos ? std::string_view() : text.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (name == "data") {
    if (current_.data.size() + value.size() + 1 > limit_) return fail(ErrorKind::too_large, "event_too_large", "");
    if (has_data_) current_.data += '\n';
    current_.data += value;
    has_data_ = true;
  } else if (name == "event") {
    current_.event = value;
  } else if (name == "id" && value.find('\0') == value.npos) {
    current_.id = value;
    has_id_ = true;
  }
  return {};
}

}  // namespace space::http
