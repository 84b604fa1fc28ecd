// Server-sent events that survive a lost connection: it connects again with Last-Event-ID and goes on where it was, without an
// event lost or seen twice.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "base/async.h"
#include "base/json.h"
#include "cli/api_client.h"
#include "http/sse.h"

namespace space::cli {

struct EventStreamOptions {
  std::string last_id;     // "": from the beginning of what the server kept
  std::string last_event;  // the event that ends the stream ("exit"); an end without it is a lost connection. "": never ends
  std::chrono::milliseconds patience{60'000};  // without a connection for this long: gives up with the last error
  std::chrono::milliseconds silence{45'000};   // without a byte, not even a comment, for this long: takes it for lost
};

class EventStream {
 public:
  EventStream(ApiClient& api, std::string target, EventStreamOptions options = {});
  // The next event; nothing after `last_event`. Errors that another try cannot mend (404, 409, 410, …) come out at once.
  Task<std::optional<http::SseEvent>> next();
  void cancel();  // a pending `next` ends with `cancelled`
  int reconnects() const { return reconnects_; }

 private:
  Task<> connect();
  Task<> read_more();
  bool seen_before(const http::SseEvent& event) const;

  ApiClient& api_;
  std::string target_;
  EventStreamOptions options_;
  std::unique_ptr<http::ClientStream> stream_;
  std::optional<http::SseReader> reader_;
  std::deque<http::SseEvent> ready_;
  int reconnects_ = -1;
  bool over_ = false;
  bool cancelled_ = false;
};

// As programs get it with --json: {"id","event","data"}, the data as it came when it is no object.
json::object event_object(const http::SseEvent& event);

// Event ids are `epoch.sequence` or `sequence`. -1, 0, 1 as a stands before, at or behind b; nothing when they do not compare.
std::optional<int> compare_event_ids(std::string_view a, std::string_view b);

}  // namespace space::cli
