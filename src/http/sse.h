// Server-sent events (WHATWG HTML, section 9.2): a writer for handlers, a bounded incremental reader for clients.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/server.h"

namespace space::http {

struct SseEvent {
  std::string id;     // "" when the event carried none
  std::string event;  // "message" when none was named
  std::string data;
};

// Text of one event. Line breaks in `data` become several data lines; `id` and `event` must not hold any.
std::string format_sse(const SseEvent& event);

class SseWriter {
 public:
  explicit SseWriter(Exchange& exchange) : exchange_(exchange) {}
  Task<> start(Headers extra = {});  // 200, text/event-stream, no-store
  Task<> send(const SseEvent& event);
  Task<> keepalive();  // a comment line
  Task<> finish();

 private:
  Exchange& exchange_;
};

// Takes bytes as they come. An event longer than `limit` is an error, once, for ever.
class SseReader {
 public:
  explicit SseReader(std::size_t limit = 4 << 20) : limit_(limit) {}
  Result<std::vector<SseEvent>> feed(std::string_view bytes);
  // The id of the last whole event that carried one: what to send as Last-Event-ID.
  const std::string& last_id() const { return last_id_; }

 private:
  Result<> line(std::string_view text, std::vector<SseEvent>& out);
  std::size_t limit_;
  std::string pending_;
  SseEvent current_;
  bool has_data_ = false;
  bool has_id_ = false;
  bool last_was_cr_ = false;
  bool first_ = true;
  bool failed_ = false;
  std::string last_id_;
};

}  // namespace space::http
