// The state of one stream on its way through the gateway. Internal to http2_session.cc and http2_callbacks.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <nghttp2/nghttp2.h>
#include <optional>
#include <string>
#include <vector>

#include "egress/credentials.h"
#include "egress/http_request.h"
#include "egress/inflate.h"
#include "egress/upstream.h"

namespace space::egress {

using Fields = std::vector<std::pair<std::string, std::string>>;

// Bytes of a body that came and did not go out yet: bounded by the windows.
class Waiting {
 public:
  void add(std::string_view bytes) {
    if (at_ >= size()) {  // what went out already gives room before it is more than what waits
      text_.erase(0, at_);
      at_ = 0;
    }
    text_.append(bytes);
  }
  std::size_t take(std::uint8_t* into, std::size_t room) {
    const std::size_t n = std::min(room, size());
    std::copy_n(text_.begin() + static_cast<std::ptrdiff_t>(at_), n, into);
    at_ += n;
    if (empty()) text_ = std::string(), at_ = 0;
    return n;
  }
  std::size_t size() const { return text_.size() - at_; }
  bool empty() const { return at_ == text_.size(); }

 private:
  std::string text_;
  std::size_t at_ = 0;
};

struct Http2Stream {
  std::int32_t guest_id = -1, upstream_id = -1;
  http::Head head;  // of the request, as it comes
  std::string authority, scheme;
  std::size_t head_bytes = 0;
  bool malformed = false;
  CheckedRequest request;
  std::string credentials;  // their names
  Scrubber scrubber;
  std::unique_ptr<Inflater> inflater;  // of an answer that is searched for secrets and came compressed
  std::size_t unconsumed = 0;          // with it: compressed bytes whose window opens when all that they gave went out
  Waiting up, down;
  bool up_ended = false, down_ended = false;
  bool guest_open = true, upstream_open = false;
  int status = 0;
  Fields answer;                 // of the upstream: the head's fields, later the trailers'
  std::size_t answer_bytes = 0;  // of all of them, interim answers' too
  bool answered = false;         // the guest has the head
  int interim = 0;               // answers of status 1xx so far
  bool refused = false;          // answered by the gateway itself
  std::uint64_t bytes_up = 0, bytes_down = 0;
  std::string note;
};

// What both sessions' callbacks work on.
class Http2Session {
 public:
  Http2Session(Flow& flow, http::Stream& guest, Upstream& upstream, std::optional<Error> dead);
  ~Http2Session();
  asio::awaitable<void> run();

  // From nghttp2's callbacks. Guest's side:
  void request_begins(std::int32_t guest_id);
  int request_field(std::int32_t guest_id, std::string_view name, std::string_view value);
  void request_head_done(std::int32_t guest_id, bool ended);
  void request_data(std::int32_t guest_id, std::string_view bytes);
  void request_ended(std::int32_t guest_id);
  void guest_stream_closed(std::int32_t guest_id);
  // Upstream's side:
  int answer_field(std::int32_t upstream_id, std::string_view name, std::string_view value);
  void answer_head_done(std::int32_t upstream_id, bool ended);
  void answer_trailers_done(std::int32_t upstream_id);
  void answer_data(std::int32_t upstream_id, std::string_view bytes);
  void answer_ended(std::int32_t upstream_id);
  void upstream_stream_closed(std::int32_t upstream_id, std::uint32_t code);
  void upstream_goes_away();
  bool inflate(Http2Stream& stream, std::string_view bytes, bool last, std::string& out);  // false: the stream was reset
  // A piece of a body for either side (nghttp2_data_source_read_callback).
  ssize_t give(bool to_guest, std::int32_t id, std::uint8_t* into, std::size_t room, std::uint32_t* flags);

 private:
  Http2Stream* by_guest(std::int32_t id);
  Http2Stream* by_upstream(std::int32_t id);
  void refuse(Http2Stream& stream, Refusal refusal);
  void pass_on(Http2Stream& stream, bool ended);
  void reset(Http2Stream& stream, std::uint32_t code);
  void finish(std::map<std::int32_t, std::unique_ptr<Http2Stream>>::iterator at);
  void reconsider();
  asio::awaitable<void> read_from(http::Stream& from, nghttp2_session* session, bool up);
  asio::awaitable<void> write_to(http::Stream& to, nghttp2_session* session, Signal& wake);
  void wake();
  void stop();

  Flow& flow_;
  http::Stream& guest_;
  Upstream& upstream_;
  std::optional<Error> dead_;
  nghttp2_session* down_ = nullptr;                               // server, toward the guest
  nghttp2_session* up_ = nullptr;                                 // client, toward the upstream; nullptr when dead
  std::map<std::int32_t, std::unique_ptr<Http2Stream>> streams_;  // by guest_id
  std::map<std::int32_t, std::int32_t> by_upstream_;
  Signal wake_down_, wake_up_;
  bool stopped_ = false;
};

Result<nghttp2_session*> make_http2_server(Http2Session& owner);
Result<nghttp2_session*> make_http2_client(Http2Session& owner);

}  // namespace space::egress
