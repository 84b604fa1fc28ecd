#include "egress/http2_session.h"

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <charconv>
#include <fmt/format.h>

#include "base/log.h"
#include "egress/http2_stream.h"
#include "egress/http_session.h"
#include "egress/quick_io.h"
#include "http/watchdog.h"

namespace space::egress {
namespace {

constexpr std::size_t kLongestHead = 64 << 10, kMostFields = 100;
// A byte of HPACK can stand for 4 KiB. nghttp2 sends no head on that may take more than 64 KiB (NGHTTP2_MAX_HEADERSLEN, 12 bytes a field
// besides).
constexpr std::size_t kLongestAnswerHead = 56 << 10, kMostAnswerFields = 200;
constexpr int kMostInterim = 16;
constexpr std::size_t kPiece = 64 << 10;
constexpr std::size_t kMostInflated = 32 << 20;
constexpr int kTurns = 4;
constexpr std::chrono::seconds kIdle{600};

nghttp2_nv field(const std::string& name, const std::string& value) {
  return {reinterpret_cast<std::uint8_t*>(const_cast<char*>(name.data())), reinterpret_cast<std::uint8_t*>(const_cast<char*>(value.data())),
          name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

std::vector<nghttp2_nv> views(const Fields& fields) {
  std::vector<nghttp2_nv> out;
  for (const auto& [name, value] : fields) out.push_back(field(name, value));
  return out;
}

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

ssize_t give_to_guest(nghttp2_session*, std::int32_t id, std::uint8_t* into, std::size_t room, std::uint32_t* flags, nghttp2_data_source*,
                      void* owner) {
  return static_cast<Http2Session*>(owner)->give(true, id, into, room, flags);
}
ssize_t give_to_upstream(nghttp2_session*, std::int32_t id, std::uint8_t* into, std::size_t room, std::uint32_t* flags,
                         nghttp2_data_source*, void* owner) {
  return static_cast<Http2Session*>(owner)->give(false, id, into, room, flags);
}

}  // namespace

Http2Session::Http2Session(Flow& flow, http::Stream& guest, Upstream& upstream, std::optional<Error> dead)
    : flow_(flow),
      guest_(guest),
      upstream_(upstream),
      dead_(std::move(dead)),
      wake_down_(flow.sandbox().services().executor),
      wake_up_(flow.sandbox().services().executor) {
  flow_.on_reconsider = [this] { reconsider(); };
}

Http2Session::~Http2Session() {
  flow_.on_reconsider = nullptr;
  if (down_) nghttp2_session_del(down_);
  if (up_) nghttp2_session_del(up_);
}

Http2Stream* Http2Session::by_guest(std::int32_t id) {
  const auto found = streams_.find(id);
  return found == streams_.end() ? nullptr : found->second.get();
}

Http2Stream* Http2Session::by_upstream(std::int32_t id) {
  const auto found = by_upstream_.find(id);
  return found == by_upstream_.end() ? nullptr : by_guest(found->second);
}

void Http2Session::wake() {
  wake_down_.notify_all();
  wake_up_.notify_all();
}

void Http2Session::stop() {
  stopped_ = true;
  wake();
}

asio::awaitable<void> Http2Session::run() {
  using namespace asio::experimental::awaitable_operators;
  auto down = make_http2_server(*this);
  if (!down) co_return;
  down_ = *down;
  if (!dead_) {
    auto up = make_http2_client(*this);
    if (!up) co_return;
    up_ = *up;
  }
  if (up_) {
    co_await (read_from(guest_, down_, true) && write_to(guest_, down_, wake_down_) && read_from(*upstream_.stream, up_, false) &&
              write_to(*upstream_.stream, up_, wake_up_));
  } else {
    co_await (read_from(guest_, down_, true) && write_to(guest_, down_, wake_down_));
  }
  while (!streams_.empty()) finish(streams_.begin());
}

asio::awaitable<void> Http2Session::read_from(http::Stream& from, nghttp2_session* session, bool up) {
  const auto scratch = flow_.sandbox().services().scratch;
  http::Watchdog watch(flow_.sandbox().services().executor, [this] { flow_.cut("nothing moved for ten minutes"); });
  for (int turn = 1; !stopped_ && !flow_.is_cut(); ++turn) {
    if (turn % kTurns == 0) co_await asio::post(flow_.sandbox().services().executor, asio::use_awaitable);  // the others' turn
    watch.set(kIdle);
    http::Transfer got = read_now(from, *scratch);
    if (got.error == asio::error::would_block) {
      const auto failed = co_await wait_for_data(from);
      if (failed) break;
      continue;
    }
    if (got.error) break;
    const ssize_t used = nghttp2_session_mem_recv(session, reinterpret_cast<const std::uint8_t*>(scratch->data()), got.bytes);
    wake();
    if (used < 0) {
      Event event = flow_.event(up ? "security" : "request", up ? "deny" : "error");
      event.protocol = "h2";
      event.reason = fmt::format("HTTP/2 broken by the {}: {}", up ? "guest" : "upstream", nghttp2_strerror(static_cast<int>(used)));
      flow_.sandbox().report(std::move(event));
      break;
    }
    bool on = false;
    if (up)
      on = co_await flow_.heard(got.bytes);
    else
      on = co_await flow_.passed_down(got.bytes);
    if (!on || (nghttp2_session_want_read(session) == 0 && nghttp2_session_want_write(session) == 0)) break;
  }
  watch.clear();
  if (std::exchange(stopped_, true)) co_return;
  // One side is over: so is the other. What is queued for the guest, such as a last GOAWAY, goes out first.
  if (!up && down_) (void)nghttp2_session_terminate_session(down_, NGHTTP2_NO_ERROR);
  wake();
}

asio::awaitable<void> Http2Session::write_to(http::Stream& to, nghttp2_session* session, Signal& signal) {
  for (;;) {
    std::string bytes;
    while (bytes.size() < kPiece) {
      const std::uint8_t* data = nullptr;
      const ssize_t size = nghttp2_session_mem_send(session, &data);
      if (size <= 0) break;
      bytes.append(reinterpret_cast<const char*>(data), static_cast<std::size_t>(size));
    }
    if (bytes.empty()) {
      if (stopped_ || flow_.is_cut()) break;
      co_await signal.wait();
      continue;
    }
    const std::array part{asio::const_buffer(bytes.data(), bytes.size())};
    const http::Transfer sent = co_await to.write_all(part);
    if (session == up_) {
      flow_.went_out(bytes.size());
      wipe_string(bytes);  // a credential may stand in it
    }
    if (sent.error) break;
    wake();  // room in a buffer lets the other side's window open
  }
  stop();
  // Ends the reader of this side, and through it the others.
  co_await to.close_write();
  to.cancel();
  if (&to == &guest_ && upstream_.stream) upstream_.stream->cancel();
  if (&to != &guest_) guest_.cancel();
}

void Http2Session::reconsider() {
  const Policy& policy = *flow_.settings().policy;
  for (auto& [id, stream] : streams_) {
    if (stream->refused || stream->request.method.empty()) continue;
    const Verdict verdict = policy.request(stream->request.to, stream->request.method, stream->request.path);
    if (verdict.allowed) continue;
    stream->note = "the policy changed: " + verdict.reason;
    reset(*stream, NGHTTP2_CANCEL);
  }
  wake();
}

void Http2Session::request_begins(std::int32_t guest_id) {
  auto stream = std::make_unique<Http2Stream>();
  stream->guest_id = guest_id;
  streams_[guest_id] = std::move(stream);
}

int Http2Session::request_field(std::int32_t guest_id, std::string_view name, std::string_view value) {
  Http2Stream* stream = by_guest(guest_id);
  if (!stream) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  stream->head_bytes += name.size() + value.size();
  if (stream->head_bytes > kLongestHead || stream->head.headers.fields().size() >= kMostFields)
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  if (name == ":method")
    stream->head.method = value;
  else if (name == ":path")
    stream->head.target = value;
  else if (name == ":authority")
    stream->authority = value;
  else if (name == ":scheme")
    stream->scheme = value;
  else if (name.starts_with(':'))
    stream->malformed = true;  // :protocol and whatever comes
  else if (name == "cookie" && stream->head.headers.has("cookie"))
    stream->head.headers.set("cookie", std::string(stream->head.headers.get("cookie")).append("; ").append(value));
  else
    stream->head.headers.add(name, std::string(value));
  return 0;
}

void Http2Session::request_head_done(std::int32_t guest_id, bool ended) {
  Http2Stream* stream = by_guest(guest_id);
  if (!stream) return;
  stream->up_ended = ended;
  http::Head& head = stream->head;
  Sandbox& sandbox = flow_.sandbox();
  ++sandbox.counters().requests;
  const auto settings = sandbox.settings();
  // :authority and Host must not differ; one of them must be there (RFC 9113, 8.3.1).
  const std::string host(head.headers.get("host"));
  const std::size_t hosts = head.headers.count("host");
  if (stream->malformed || stream->scheme != "https" || hosts > 1 ||
      (hosts == 1 && !stream->authority.empty() && host != stream->authority)) {
    Refusal refusal{
        400,
        Error{ErrorKind::invalid_argument, "bad_request",
              "the egress gateway refused this request: its :authority, Host or :scheme contradict each other", "send one host"},
        "", true};
    return refuse(*stream, std::move(refusal));
  }
  if (!stream->authority.empty()) head.headers.set("host", stream->authority);
  head.framing = ended ? http::Framing::none : http::Framing::chunked;
  if (!sandbox.budget().request())
    return refuse(*stream,
                  {429,
                   Error{ErrorKind::resource_exhausted, "too_many_requests",
                         fmt::format("this sandbox may send {} requests a second", settings->limits.requests_per_second), "send fewer"},
                   "", false});
  auto request = check_request(head, flow_.to(), true, *settings);
  if (!request) return refuse(*stream, std::move(request).error());
  if (dead_) return refuse(*stream, upstream_refusal(*dead_));
  // nghttp2 holds the guest to its content-length, so that it may go on as it is.
  const std::string length(head.headers.get("content-length"));
  const bool trailers = http::equal_no_case(head.headers.get("te"), "trailers");
  strip_request(head.headers, settings->policy->reads_methods(request->to));
  auto injection = inject(*sandbox.services().credentials, *settings, true, *request, head.headers);
  if (!injection) return refuse(*stream, std::move(injection).error());
  if (trailers) head.headers.set("te", "trailers");
  if (!length.empty()) head.headers.set("content-length", length);
  stream->request = std::move(*request);
  stream->credentials = injection->names;
  stream->scrubber = Scrubber(*injection);
  sandbox.observed().note(stream->request.to, Protocol::https, stream->request.method);
  pass_on(*stream, ended);
}

void Http2Session::pass_on(Http2Stream& stream, bool ended) {
  Fields fields{
      {":method", stream.request.method}, {":scheme", "https"}, {":authority", stream.request.host}, {":path", stream.request.target}};
  for (const auto& [name, value] : stream.head.headers.fields())
    if (!http::equal_no_case(name, "host")) fields.emplace_back(lower(name), value);
  std::vector<nghttp2_nv> nv = views(fields);
  for (std::size_t i = 4; i < nv.size(); ++i)
    if (stream.scrubber.active()) nv[i].flags = NGHTTP2_NV_FLAG_NO_INDEX;  // no secret in a compression table
  nghttp2_data_provider body{};
  body.read_callback = give_to_upstream;
  const std::int32_t id = nghttp2_submit_request(up_, nullptr, nv.data(), nv.size(), ended ? nullptr : &body, nullptr);
  for (auto& [name, value] : fields)
    if (stream.scrubber.active()) wipe_string(value);
  if (stream.scrubber.active()) {
    wipe_fields(stream.head.headers);
    wipe_string(stream.request.target);
  }
  if (id < 0)
    return refuse(
        stream, upstream_refusal({ErrorKind::unavailable, "upstream_closed", "it takes no more requests on this connection", "try again"}));
  stream.upstream_id = id;
  stream.upstream_open = true;
  by_upstream_[id] = stream.guest_id;
}

void Http2Session::refuse(Http2Stream& stream, Refusal refusal) {
  stream.refused = true;
  stream.status = refusal.status;
  Event event = flow_.event(refusal.security ? "security" : "request", refusal.status >= 500 ? "error" : "deny");
  event.protocol = "h2";
  event.method = stream.head.method;
  event.path = stream.head.target.substr(0, stream.head.target.find('?'));
  event.rule = refusal.rule;
  event.status = refusal.status;
  event.reason = refusal.error.message;
  flow_.sandbox().report(std::move(event));
  const http::Response response = refusal_response(refusal);
  Fields fields{{":status", std::to_string(response.status)}};
  for (const auto& [name, value] : response.headers.fields()) fields.emplace_back(lower(name), value);
  const std::vector<nghttp2_nv> nv = views(fields);
  if (stream.head.method != "HEAD") stream.down.add(response.body);
  stream.down_ended = true;
  stream.answered = true;
  nghttp2_data_provider body{};
  body.read_callback = give_to_guest;
  (void)nghttp2_submit_response(down_, stream.guest_id, nv.data(), nv.size(), &body);
}

void Http2Session::request_data(std::int32_t guest_id, std::string_view bytes) {
  Http2Stream* stream = by_guest(guest_id);
  if (!stream || stream->refused || !stream->upstream_open) {
    // Nobody wants it; the connection's window must open again all the same.
    (void)nghttp2_session_consume(down_, guest_id, bytes.size());
    return;
  }
  stream->up.add(bytes);
  stream->bytes_up += bytes.size();
  (void)nghttp2_session_resume_data(up_, stream->upstream_id);
}

void Http2Session::request_ended(std::int32_t guest_id) {
  Http2Stream* stream = by_guest(guest_id);
  if (!stream) return;
  stream->up_ended = true;
  if (stream->upstream_open) (void)nghttp2_session_resume_data(up_, stream->upstream_id);
}

void Http2Session::guest_stream_closed(std::int32_t guest_id) {
  const auto found = streams_.find(guest_id);
  if (found == streams_.end()) return;
  found->second->guest_open = false;
  if (found->second->upstream_open) (void)nghttp2_submit_rst_stream(up_, NGHTTP2_FLAG_NONE, found->second->upstream_id, NGHTTP2_CANCEL);
  finish(found);
}

int Http2Session::answer_field(std::int32_t upstream_id, std::string_view name, std::string_view value) {
  Http2Stream* stream = by_upstream(upstream_id);
  if (!stream) return 0;
  stream->answer_bytes += name.size() + value.size();
  if (stream->answer_bytes > kLongestAnswerHead || stream->answer.size() >= kMostAnswerFields) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  stream->answer.emplace_back(name, value);
  return 0;
}

void Http2Session::answer_head_done(std::int32_t upstream_id, bool ended) {
  Http2Stream* stream = by_upstream(upstream_id);
  if (!stream) return;
  if (stream->answered) return answer_trailers_done(upstream_id);
  Fields fields = std::exchange(stream->answer, {});
  int status = 0;
  http::Headers headers;
  for (const auto& [name, value] : fields) {
    if (name == ":status")
      (void)std::from_chars(value.data(), value.data() + value.size(), status);
    else
      headers.add(name, value);
  }
  if (status < 200) {  // interim answers are for the hop between the upstream and us
    if (++stream->interim <= kMostInterim) return;
    stream->note = fmt::format("it sent more than {} interim answers", kMostInterim);
    return reset(*stream, NGHTTP2_ENHANCE_YOUR_CALM);
  }
  if (const std::string_view coding = headers.get("content-encoding");
      stream->scrubber.active() && !coding.empty() && !http::equal_no_case(coding, "identity") && !ended) {
    const bool deflate = http::equal_no_case(coding, "deflate");
    auto inflater = Inflater::make(deflate);
    if (!inflater || (!deflate && !http::equal_no_case(coding, "gzip") && !http::equal_no_case(coding, "x-gzip"))) {
      stream->note = "it compressed the answer to a request with a credential in a way that is not read here, although it was asked not to";
      return reset(*stream, NGHTTP2_INTERNAL_ERROR);
    }
    stream->inflater = std::move(*inflater);
    headers.remove("content-encoding");
  }
  if (headers.get("content-type").starts_with("application/grpc")) stream->scrubber.take_turns();
  strip_response(headers);
  if (const auto length = std::find_if(fields.begin(), fields.end(), [](const auto& f) { return f.first == "content-length"; });
      length != fields.end() && !stream->inflater)
    headers.set("content-length", length->second);
  stream->status = status;
  Fields out{{":status", std::to_string(status)}};
  for (const auto& [name, value] : headers.fields())
    out.emplace_back(lower(name), stream->scrubber.active() ? stream->scrubber.whole(value) : value);
  const std::vector<nghttp2_nv> nv = views(out);
  stream->answered = true;
  stream->down_ended = ended;
  nghttp2_data_provider body{};
  body.read_callback = give_to_guest;
  if (nghttp2_submit_response(down_, stream->guest_id, nv.data(), nv.size(), ended ? nullptr : &body) != 0)
    reset(*stream, NGHTTP2_INTERNAL_ERROR);
}

void Http2Session::answer_trailers_done(std::int32_t upstream_id) { answer_ended(upstream_id); }

void Http2Session::answer_data(std::int32_t upstream_id, std::string_view bytes) {
  Http2Stream* stream = by_upstream(upstream_id);
  if (!stream || !stream->guest_open || !stream->answered) {
    (void)nghttp2_session_consume(up_, upstream_id, bytes.size());
    return;
  }
  stream->bytes_down += bytes.size();
  std::string plain;
  if (stream->inflater) {
    stream->unconsumed += bytes.size();
    if (!inflate(*stream, bytes, false, plain)) return;
    bytes = plain;
  }
  if (stream->scrubber.active())
    stream->down.add(stream->scrubber.push(bytes));
  else
    stream->down.add(bytes);
  (void)nghttp2_session_resume_data(down_, stream->guest_id);
}

void Http2Session::answer_ended(std::int32_t upstream_id) {
  Http2Stream* stream = by_upstream(upstream_id);
  if (!stream) return;
  std::string plain;
  if (stream->inflater && !inflate(*stream, {}, true, plain)) return;
  if (!plain.empty()) stream->down.add(stream->scrubber.push(plain));
  if (stream->scrubber.active()) stream->down.add(stream->scrubber.finish());
  stream->down_ended = true;
  (void)nghttp2_session_resume_data(down_, stream->guest_id);
}

bool Http2Session::inflate(Http2Stream& stream, std::string_view bytes, bool last, std::string& out) {
  auto made = stream.inflater->push(bytes, last);
  if (made && stream.down.size() + made->size() <= kMostInflated) {
    out = std::move(*made);
    // What gave nothing yet is not waited for by the guest, and the upstream may have to go on for it.
    if (out.empty() && stream.down.empty() && stream.upstream_open)
      (void)nghttp2_session_consume(up_, stream.upstream_id, std::exchange(stream.unconsumed, 0));
    return true;
  }
  stream.note = made ? "its compressed answer to a request with a credential is too large" : made.error().message;
  reset(stream, NGHTTP2_INTERNAL_ERROR);
  return false;
}

void Http2Session::upstream_stream_closed(std::int32_t upstream_id, std::uint32_t code) {
  Http2Stream* stream = by_upstream(upstream_id);
  by_upstream_.erase(upstream_id);
  if (!stream) return;
  stream->upstream_open = false;
  // A server may stop reading once it answered (RFC 9113, 8.1); any other fault is the guest's to see.
  if (!stream->down_ended && stream->guest_open) {
    if (stream->note.empty()) stream->note = fmt::format("the upstream ended it: {}", nghttp2_http2_strerror(code));
    reset(*stream, code == NGHTTP2_NO_ERROR ? static_cast<std::uint32_t>(NGHTTP2_INTERNAL_ERROR) : code);
  }
}

void Http2Session::upstream_goes_away() {
  (void)nghttp2_submit_goaway(down_, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(down_), NGHTTP2_NO_ERROR, nullptr, 0);
}

void Http2Session::reset(Http2Stream& stream, std::uint32_t code) {
  if (stream.guest_open) (void)nghttp2_submit_rst_stream(down_, NGHTTP2_FLAG_NONE, stream.guest_id, code);
  if (stream.upstream_open && up_) (void)nghttp2_submit_rst_stream(up_, NGHTTP2_FLAG_NONE, stream.upstream_id, NGHTTP2_CANCEL);
}

void Http2Session::finish(std::map<std::int32_t, std::unique_ptr<Http2Stream>>::iterator at) {
  const Http2Stream& stream = *at->second;
  if (!stream.refused && !stream.request.method.empty()) {
    const bool whole = stream.answered && stream.down_ended && stream.down.empty();
    Event event = flow_.event("request", flow_.is_cut() || stream.note.starts_with("the policy") ? "deny" : whole ? "allow" : "error");
    event.protocol = "h2";
    event.method = stream.request.method;
    event.path = stream.request.path;
    event.rule = stream.request.rule;
    event.status = stream.status;
    event.credential = stream.credentials;
    event.bytes_up = stream.bytes_up;
    event.bytes_down = stream.bytes_down;
    event.reason = flow_.is_cut() ? flow_.why_cut() : stream.scrubber.found() ? "a secret was taken out of the answer" : stream.note;
    flow_.sandbox().report(std::move(event));
  }
  if (stream.upstream_id >= 0) {
    // What the guest will not take any more must not hold the upstream's connection window.
    const std::size_t held = stream.inflater ? stream.unconsumed : stream.down.size();
    if (up_ && held > 0) (void)nghttp2_session_consume_connection(up_, held);
    by_upstream_.erase(stream.upstream_id);
  }
  if (down_ && !stream.up.empty()) (void)nghttp2_session_consume_connection(down_, stream.up.size());
  streams_.erase(at);
}

ssize_t Http2Session::give(bool to_guest, std::int32_t id, std::uint8_t* into, std::size_t room, std::uint32_t* flags) {
  Http2Stream* stream = to_guest ? by_guest(id) : by_upstream(id);
  if (!stream) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  Waiting& from = to_guest ? stream->down : stream->up;
  const bool ended = to_guest ? stream->down_ended : stream->up_ended;
  const std::size_t size = from.take(into, room);
  // Only now may the other side send as much again.
  if (to_guest && stream->inflater) {
    const std::size_t open = from.empty() ? std::exchange(stream->unconsumed, 0) : 0;
    if (open > 0 && stream->upstream_open)
      (void)nghttp2_session_consume(up_, stream->upstream_id, open);
    else if (open > 0)
      (void)nghttp2_session_consume_connection(up_, open);
  } else if (size > 0 && to_guest && up_ && stream->upstream_open)
    (void)nghttp2_session_consume(up_, stream->upstream_id, size);
  else if (size > 0 && to_guest && up_ && stream->upstream_id >= 0)
    (void)nghttp2_session_consume_connection(up_, size);
  else if (size > 0 && !to_guest)
    (void)nghttp2_session_consume(down_, stream->guest_id, size);
  if (from.empty() && ended) {
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (to_guest && !stream->answer.empty() && !stream->refused) {
      Fields trailers;
      for (const auto& [name, value] : stream->answer)
        if (!name.starts_with(':')) trailers.emplace_back(name, stream->scrubber.active() ? stream->scrubber.whole(value) : value);
      stream->answer.clear();
      const std::vector<nghttp2_nv> nv = views(trailers);
      if (!nv.empty() && nghttp2_submit_trailer(down_, id, nv.data(), nv.size()) == 0) *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
    }
  } else if (size == 0) {
    return NGHTTP2_ERR_DEFERRED;
  }
  return static_cast<ssize_t>(size);
}

asio::awaitable<void> serve_http2(Flow& flow, http::Stream& guest, Upstream& upstream, std::optional<Error> dead) {
  flow.protocol = "h2";
  Http2Session session(flow, guest, upstream, std::move(dead));
  co_await session.run();
  if (flow.is_cut())
    guest.reset();
  else
    co_await close_gently(guest);
  upstream.drop();
}

}  // namespace space::egress
