#include "egress/http2_stream.h"

namespace space::egress {
namespace {

constexpr std::uint32_t kStreams = 100, kWindow = 256 << 10, kConnectionWindow = 1 << 20, kHeaderList = 64 << 10;

Http2Session& owner(void* data) { return *static_cast<Http2Session*>(data); }
std::string_view text(const std::uint8_t* bytes, std::size_t size) { return {reinterpret_cast<const char*>(bytes), size}; }

struct OptionFree {
  void operator()(nghttp2_option* o) const { nghttp2_option_del(o); }
  void operator()(nghttp2_session_callbacks* c) const { nghttp2_session_callbacks_del(c); }
};

Result<nghttp2_session*> make(Http2Session& session, bool server) {
  auto failed = [] { return fail(ErrorKind::resource_exhausted, "http2_failed", "nghttp2 gave no session"); };
  nghttp2_session_callbacks* made = nullptr;
  if (nghttp2_session_callbacks_new(&made) != 0) return failed();
  const std::unique_ptr<nghttp2_session_callbacks, OptionFree> callbacks(made);
  if (server) {
    nghttp2_session_callbacks_set_on_begin_headers_callback(made, [](nghttp2_session*, const nghttp2_frame* frame, void* data) {
      if (frame->headers.cat == NGHTTP2_HCAT_REQUEST) owner(data).request_begins(frame->hd.stream_id);
      return 0;
    });
    nghttp2_session_callbacks_set_on_header_callback(
        made, [](nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name, std::size_t name_size, const std::uint8_t* value,
                 std::size_t value_size, std::uint8_t, void* data) {
          if (frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;  // trailers of a request end here
          return owner(data).request_field(frame->hd.stream_id, text(name, name_size), text(value, value_size));
        });
    nghttp2_session_callbacks_set_on_frame_recv_callback(made, [](nghttp2_session*, const nghttp2_frame* frame, void* data) {
      const bool ended = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
      if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        owner(data).request_head_done(frame->hd.stream_id, ended);
      else if ((frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) && ended)
        owner(data).request_ended(frame->hd.stream_id);
      return 0;
    });
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
        made, [](nghttp2_session*, std::uint8_t, std::int32_t id, const std::uint8_t* bytes, std::size_t size, void* data) {
          owner(data).request_data(id, text(bytes, size));
          return 0;
        });
    nghttp2_session_callbacks_set_on_stream_close_callback(made, [](nghttp2_session*, std::int32_t id, std::uint32_t, void* data) {
      owner(data).guest_stream_closed(id);
      return 0;
    });
  } else {
    nghttp2_session_callbacks_set_on_header_callback(
        made, [](nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name, std::size_t name_size, const std::uint8_t* value,
                 std::size_t value_size, std::uint8_t,
                 void* data) { return owner(data).answer_field(frame->hd.stream_id, text(name, name_size), text(value, value_size)); });
    nghttp2_session_callbacks_set_on_frame_recv_callback(made, [](nghttp2_session*, const nghttp2_frame* frame, void* data) {
      const bool ended = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
      if (frame->hd.type == NGHTTP2_GOAWAY) {
        owner(data).upstream_goes_away();
      } else if (frame->hd.type == NGHTTP2_HEADERS) {
        // An interim answer makes nghttp2 call the final one HCAT_HEADERS: the owner tells it from trailers.
        owner(data).answer_head_done(frame->hd.stream_id, ended);
      } else if (frame->hd.type == NGHTTP2_DATA && ended) {
        owner(data).answer_ended(frame->hd.stream_id);
      }
      return 0;
    });
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
        made, [](nghttp2_session*, std::uint8_t, std::int32_t id, const std::uint8_t* bytes, std::size_t size, void* data) {
          owner(data).answer_data(id, text(bytes, size));
          return 0;
        });
    nghttp2_session_callbacks_set_on_stream_close_callback(made, [](nghttp2_session*, std::int32_t id, std::uint32_t code, void* data) {
      owner(data).upstream_stream_closed(id, code);
      return 0;
    });
  }
  nghttp2_option* option = nullptr;
  if (nghttp2_option_new(&option) != 0) return failed();
  const std::unique_ptr<nghttp2_option, OptionFree> options(option);
  // A window opens again only when the bytes went out on the other side: memory is bounded by the windows.
  nghttp2_option_set_no_auto_window_update(option, 1);
  nghttp2_option_set_max_send_header_block_length(option, 256 << 10);
  nghttp2_session* out = nullptr;
  const int result =
      server ? nghttp2_session_server_new2(&out, made, &session, option) : nghttp2_session_client_new2(&out, made, &session, option);
  if (result != 0) return failed();
  std::vector<nghttp2_settings_entry> settings{{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kWindow},
                                               {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, kHeaderList}};
  if (server)
    settings.push_back({NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, kStreams});
  else
    settings.push_back({NGHTTP2_SETTINGS_ENABLE_PUSH, 0});
  if (nghttp2_submit_settings(out, NGHTTP2_FLAG_NONE, settings.data(), settings.size()) != 0 ||
      nghttp2_session_set_local_window_size(out, NGHTTP2_FLAG_NONE, 0, static_cast<std::int32_t>(kConnectionWindow)) != 0) {
    nghttp2_session_del(out);
    return failed();
  }
  return out;
}

}  // namespace

Result<nghttp2_session*> make_http2_server(Http2Session& session) { return make(session, true); }
Result<nghttp2_session*> make_http2_client(Http2Session& session) { return make(session, false); }

}  // namespace space::egress
