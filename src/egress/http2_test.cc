// HTTP/2 from a guest through the gateway to an upstream, with nghttp2 at both ends.
#include <nghttp2/nghttp2.h>
#include <zlib.h>

#include "egress/testing.h"

namespace space::egress {
namespace {

using test::Gateway;
using test::run;

constexpr const char* kReadRule = R"({"mode":"allowlist","rules":[{"name":"a.example.com","protocol":"https","ports":[PORT]}]})";
using Fields = std::vector<std::pair<std::string, std::string>>;

std::vector<nghttp2_nv> views(const Fields& fields) {
  std::vector<nghttp2_nv> out;
  for (const auto& [name, value] : fields)
    out.push_back({reinterpret_cast<std::uint8_t*>(const_cast<char*>(name.data())),
                   reinterpret_cast<std::uint8_t*>(const_cast<char*>(value.data())), name.size(), value.size(), 0});
  return out;
}

// One end of a connection: what arrived on each stream, and a body to send on each.
struct Peer {
  struct Stream {
    Fields fields;
    std::string body, to_send;
    Fields trailers;
    bool ended = false, reset = false;
  };
  Peer(http::Stream& connection, bool server) : stream(connection) {
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(
        callbacks, [](nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name, std::size_t n, const std::uint8_t* value,
                      std::size_t v, std::uint8_t, void* self) {
          static_cast<Peer*>(self)->streams[frame->hd.stream_id].fields.emplace_back(std::string(reinterpret_cast<const char*>(name), n),
                                                                                     std::string(reinterpret_cast<const char*>(value), v));
          return 0;
        });
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
        callbacks, [](nghttp2_session*, std::uint8_t, std::int32_t id, const std::uint8_t* data, std::size_t n, void* self) {
          static_cast<Peer*>(self)->streams[id].body.append(reinterpret_cast<const char*>(data), n);
          return 0;
        });
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, [](nghttp2_session*, const nghttp2_frame* frame, void* self) {
      Peer& peer = *static_cast<Peer*>(self);
      if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) {
        peer.streams[frame->hd.stream_id].ended = true;
        if (peer.on_end) peer.on_end(frame->hd.stream_id);
      }
      return 0;
    });
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks,
                                                           [](nghttp2_session*, std::int32_t id, std::uint32_t code, void* self) {
                                                             if (code != 0) static_cast<Peer*>(self)->streams[id].reset = true;
                                                             return 0;
                                                           });
    nghttp2_option* option = nullptr;
    nghttp2_option_new(&option);
    nghttp2_option_set_max_send_header_block_length(option, 1 << 20);
    if (server)
      nghttp2_session_server_new2(&session, callbacks, this, option);
    else
      nghttp2_session_client_new2(&session, callbacks, this, option);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(session, 0, nullptr, 0);
  }
  ~Peer() { nghttp2_session_del(session); }

  nghttp2_data_provider body_of() {
    nghttp2_data_provider provider{};
    provider.source.ptr = this;
    provider.read_callback = [](nghttp2_session* s, std::int32_t id, std::uint8_t* into, std::size_t room, std::uint32_t* flags,
                                nghttp2_data_source* source, void*) -> ssize_t {
      Stream& out = static_cast<Peer*>(source->ptr)->streams[id];
      const std::size_t n = std::min(room, out.to_send.size());
      std::copy_n(out.to_send.begin(), n, into);
      out.to_send.erase(0, n);
      if (out.to_send.empty()) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (!out.trailers.empty()) {
          const auto nv = views(out.trailers);
          *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
          nghttp2_submit_trailer(s, id, nv.data(), nv.size());
        }
      }
      return static_cast<ssize_t>(n);
    };
    return provider;
  }

  std::int32_t request(const Fields& fields, std::string body = "") {
    const auto nv = views(fields);
    nghttp2_data_provider provider = body_of();
    const std::int32_t id = nghttp2_submit_request(session, nullptr, nv.data(), nv.size(), body.empty() ? nullptr : &provider, nullptr);
    streams[id].to_send = std::move(body);
    return id;
  }

  // Sends and receives until `done`, or the other end closed.
  asio::awaitable<void> drive(std::function<bool()> done) {
    for (;;) {
      std::string out;
      const std::uint8_t* data = nullptr;
      for (ssize_t n; (n = nghttp2_session_mem_send(session, &data)) > 0;)
        out.append(reinterpret_cast<const char*>(data), static_cast<std::size_t>(n));
      if (!out.empty()) co_await test::send(stream, out);
      if (done()) co_return;
      std::array<char, 16384> buffer;
      const std::array room{asio::mutable_buffer(buffer.data(), buffer.size())};
      const http::Transfer got = co_await stream.read_some(room);
      if (got.error || nghttp2_session_mem_recv(session, reinterpret_cast<const std::uint8_t*>(buffer.data()), got.bytes) < 0) co_return;
    }
  }

  std::string field(std::int32_t id, std::string_view name) {
    for (const auto& [key, value] : streams[id].fields)
      if (key == name) return value;
    return "";
  }

  http::Stream& stream;
  nghttp2_session* session = nullptr;
  std::map<std::int32_t, Stream> streams;
  std::function<void(std::int32_t)> on_end;
};

// Answers with what it got, and with trailers as gRPC has them.
Gateway::Serve echo() {
  return [](http::Stream& stream) -> asio::awaitable<void> {
    Peer peer(stream, true);
    peer.on_end = [&peer](std::int32_t id) {
      Peer::Stream& s = peer.streams[id];
      for (const auto& [name, value] : s.fields) s.to_send += name + "=" + value + "\n";
      s.to_send += s.body;
      s.trailers = {{"grpc-status", "0"}, {"x-auth", peer.field(id, "authorization")}};
      const Fields head{{":status", "200"}, {"content-type", "application/grpc"}, {"alt-svc", "h3"}};
      const auto nv = views(head);
      nghttp2_data_provider provider = peer.body_of();
      nghttp2_submit_response(peer.session, id, nv.data(), nv.size(), &provider);
    };
    const auto never = [] { return false; };
    co_await peer.drive(never);
  };
}

Fields get(const Gateway& gateway, std::string path = "/v1/x", std::string name = "a.example.com") {
  return {{":method", "POST"},
          {":scheme", "https"},
          {":authority", fmt::format("{}:{}", name, gateway.upstream_port)},
          {":path", std::move(path)}};
}

TEST(Http2, ChecksEachStreamAndCarriesTrailers) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Gateway gateway(executor);
    gateway.upstream(echo(), "a.example.com", "h2");
    gateway.credentials.set("key", Secret(std::string_view("s3cr3t-value-1234")));
    gateway.set(kReadRule, R"([{"credential":"key","name":"a.example.com","port":PORT,"paths":["/v1"],"bearer":true}])");
    auto guest = co_await gateway.dial_tls("a.example.com", "", "h2");
    EXPECT_TRUE(guest);
    if (!guest) co_return;
    Peer peer(*guest, false);
    Fields with_te = get(gateway);
    with_te.emplace_back("te", "trailers");
    with_te.emplace_back("x-forwarded-for", "1.2.3.4");
    const std::int32_t good = peer.request(with_te, std::string(300'000, 'b'));
    const std::int32_t other = peer.request(get(gateway, "/", "b.example.com"));
    Fields two_hosts = get(gateway);
    two_hosts.emplace_back("host", "b.example.com");
    const std::int32_t contradicting = peer.request(two_hosts);
    const std::int32_t plain = peer.request(get(gateway, "/open"));
    const std::vector<std::int32_t> all{good, other, contradicting, plain};
    const auto done = [&] {
      return std::all_of(all.begin(), all.end(), [&](std::int32_t id) { return peer.streams[id].ended || peer.streams[id].reset; });
    };
    co_await peer.drive(done);
    EXPECT_EQ(peer.field(good, ":status"), "200");
    EXPECT_EQ(peer.field(good, "grpc-status"), "0");
    EXPECT_EQ(peer.field(good, "alt-svc"), "");
    EXPECT_EQ(peer.field(good, "x-auth"), "Bearer *****************");
    const std::string& body = peer.streams[good].body;
    EXPECT_TRUE(body.ends_with(std::string(300'000, 'b')));
    EXPECT_NE(body.find("authorization=Bearer *****************\n"), std::string::npos);
    EXPECT_NE(body.find("te=trailers\n"), std::string::npos);
    EXPECT_EQ(body.find("x-forwarded-for"), std::string::npos);
    EXPECT_EQ(body.find("s3cr3t"), std::string::npos);
    EXPECT_EQ(peer.field(other, ":status"), "421");
    EXPECT_EQ(peer.field(contradicting, ":status"), "400");
    EXPECT_EQ(peer.field(plain, ":status"), "200");
    EXPECT_EQ(peer.streams[plain].body.find("authorization"), std::string::npos);
    EXPECT_TRUE(gateway.saw("security", "deny"));
  });
}

TEST(Http2, WhatIsRefusedOnAConnectionIsNotCountedAsSentOut) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Gateway gateway(executor);
    gateway.upstream(echo(), "a.example.com", "h2");
    gateway.set(kReadRule);
    auto guest = co_await gateway.dial_tls("a.example.com", "", "h2");
    EXPECT_TRUE(guest);
    if (!guest) co_return;
    Peer peer(*guest, false);
    const Counters& counters = gateway.sandbox->counters();
    const std::int32_t good = peer.request(get(gateway));
    const auto good_over = [&] { return peer.streams[good].ended; };
    co_await peer.drive(good_over);
    EXPECT_EQ(peer.field(good, ":status"), "200");
    const std::uint64_t outside = counters.outside, up = counters.bytes_up;
    EXPECT_GT(outside, 0U);
    Fields wrong = get(gateway, "/", "b.example.com");
    wrong.emplace_back("x-long", std::string(20'000, 'x'));
    const std::int32_t refused = peer.request(wrong);
    const auto refused_over = [&] { return peer.streams[refused].ended; };
    co_await peer.drive(refused_over);
    EXPECT_EQ(peer.field(refused, ":status"), "421");
    EXPECT_GT(counters.bytes_up, up + 10'000);
    EXPECT_LT(counters.outside, outside + 1'000) << "no more than what ends the first one";
  });
}

std::string gzip(std::string text) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(text.data());
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

TEST(Http2, FindsASecretInACompressedAnswerToo) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Gateway gateway(executor);
    const std::string secret = "s3cr3t-value-1234";
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += fmt::format("line {} of {}\n", i, i % 1000 == 0 ? secret : "many");
    auto compress = [&text](http::Stream& stream) -> asio::awaitable<void> {
      Peer peer(stream, true);
      peer.on_end = [&](std::int32_t id) {
        const bool broken = peer.field(id, ":path") == "/v1/broken";
        std::string body = gzip(text);
        if (broken) body = body.substr(0, body.size() / 2);
        const Fields head{{":status", "200"}, {"content-encoding", "gzip"}, {"content-length", std::to_string(body.size())}};
        peer.streams[id].to_send = std::move(body);
        const auto nv = views(head);
        nghttp2_data_provider provider = peer.body_of();
        nghttp2_submit_response(peer.session, id, nv.data(), nv.size(), &provider);
      };
      const auto never = [] { return false; };
      co_await peer.drive(never);
    };
    gateway.upstream(compress, "a.example.com", "h2");
    gateway.credentials.set("key", Secret(std::string_view(secret)));
    gateway.set(kReadRule, R"([{"credential":"key","name":"a.example.com","port":PORT,"paths":["/v1"],"bearer":true}])");
    auto guest = co_await gateway.dial_tls("a.example.com", "", "h2");
    EXPECT_TRUE(guest);
    if (!guest) co_return;
    Peer peer(*guest, false);
    const std::int32_t whole = peer.request(get(gateway)), broken = peer.request(get(gateway, "/v1/broken"));
    const auto over = [&] { return peer.streams[whole].ended && peer.streams[broken].reset; };
    co_await peer.drive(over);
    EXPECT_EQ(peer.field(whole, "content-encoding"), "");
    EXPECT_EQ(peer.streams[whole].body.size(), text.size());
    EXPECT_EQ(peer.streams[whole].body.find("s3cr3t"), std::string::npos);
    EXPECT_NE(peer.streams[whole].body.find("line 1000 of *****************\n"), std::string::npos);
    EXPECT_FALSE(peer.streams[broken].ended);
  });
}

// Of a field that it repeats, an upstream sends a byte, and the gateway keeps four thousand.
TEST(Http2, TakesNoAnswerWhoseHeadGrowsWithoutEnd) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Gateway gateway(executor);
    auto repeats = [](http::Stream& stream) -> asio::awaitable<void> {
      Peer peer(stream, true);
      peer.on_end = [&](std::int32_t id) {
        Fields head{{":status", "200"}};
        for (int i = peer.field(id, ":path") == "/v1/long" ? 16 : 12; i > 0; --i) head.emplace_back("x-again", std::string(3900, 'v'));
        const auto nv = views(head);
        nghttp2_submit_response(peer.session, id, nv.data(), nv.size(), nullptr);
      };
      const auto never = [] { return false; };
      co_await peer.drive(never);
    };
    gateway.upstream(repeats, "a.example.com", "h2");
    gateway.set(kReadRule);
    auto guest = co_await gateway.dial_tls("a.example.com", "", "h2");
    EXPECT_TRUE(guest);
    if (!guest) co_return;
    Peer peer(*guest, false);
    const std::int32_t refused = peer.request(get(gateway, "/v1/long")), taken = peer.request(get(gateway, "/v1/large"));
    const auto over = [&] {
      return (peer.streams[refused].ended || peer.streams[refused].reset) && (peer.streams[taken].ended || peer.streams[taken].reset);
    };
    co_await peer.drive(over);
    EXPECT_TRUE(peer.streams[refused].reset);
    EXPECT_TRUE(peer.streams[taken].ended);
    EXPECT_EQ(peer.field(taken, ":status"), "200");
  });
}

TEST(Http2, CutsAStreamThatANewPolicyForbidsAndServesOthers) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Gateway gateway(executor);
    bool came = false;
    auto hang = [&came](http::Stream& stream) -> asio::awaitable<void> {
      Peer peer(stream, true);
      peer.on_end = [&](std::int32_t id) {
        came = true;
        if (peer.field(id, ":path") != "/b") return;  // never answered
        const Fields head{{":status", "204"}};
        const auto nv = views(head);
        nghttp2_submit_response(peer.session, id, nv.data(), nv.size(), nullptr);
      };
      const auto never = [] { return false; };
      co_await peer.drive(never);
    };
    gateway.upstream(hang, "a.example.com", "h2");
    gateway.set(kReadRule);
    auto guest = co_await gateway.dial_tls("a.example.com", "", "h2");
    EXPECT_TRUE(guest);
    if (!guest) co_return;
    Peer peer(*guest, false);
    const std::int32_t first = peer.request(get(gateway, "/a"));
    const auto change = [&]() -> asio::awaitable<void> {
      while (!came) co_await sleep_for(std::chrono::milliseconds(5));
      gateway.set(R"({"mode":"allowlist","rules":[{"name":"a.example.com","protocol":"https","ports":[PORT],"paths":["/b"]}]})");
    };
    spawn(executor, change());
    const auto first_over = [&] { return peer.streams[first].reset; };
    co_await peer.drive(first_over);
    EXPECT_TRUE(peer.streams[first].reset);
    const std::int32_t second = peer.request(get(gateway, "/b"));
    const auto second_over = [&] { return peer.streams[second].ended; };
    co_await peer.drive(second_over);
    EXPECT_EQ(peer.field(second, ":status"), "204");
  });
}

}  // namespace
}  // namespace space::egress
