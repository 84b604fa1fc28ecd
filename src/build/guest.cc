#include "build/guest.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "base/encoding.h"
#include "base/file.h"
#include "base/json.h"
#include "http/sse.h"

namespace space::build {
namespace {

constexpr std::size_t kPiece = 256 << 10;
constexpr std::size_t kEventLimit = 256 << 10;
constexpr std::chrono::seconds kSilence{90};  // node's streams have a sign of life far more often

tl::unexpected<Error> odd(std::string_view what) {
  return fail(ErrorKind::unavailable, "build_stream_broken", fmt::format("the output of a step broke off: {}", what),
              "build again: what is done is kept");
}

// What one event says. `over` when it is the last.
Result<> take(const http::SseEvent& event, const Guest::Hear& hear, Guest::Ended& ended, bool& over) {
  if (event.event != "stdout" && event.event != "stderr" && event.event != "exit") return {};
  TRY(const json::object data, parse_json_object(event.data, kEventLimit));
  JsonReader r(data);
  r.ignore_unknown();
  if (event.event == "exit") {
    ended.code = r.number("code", -1, 1 << 16, -1);
    ended.signal = r.number("signal", 0, 255, 0);
    ended.timed_out = r.boolean("timed_out", false);
    over = true;
    return r.done();
  }
  const std::string encoded = r.text("data", 0, kEventLimit, "");
  TRY_VOID(r.done());
  const auto bytes = base64_decode(encoded);
  if (!bytes) return odd("an event is not understood");
  if (hear) hear(event.event == "stderr", *bytes);
  return {};
}

}  // namespace

http::Request Guest::request(std::string method, std::string rest) const {
  http::Request out;
  out.method = std::move(method);
  out.target = fmt::format("/v1/sandboxes/{}/{}", sandbox_, rest);
  out.headers.set("Space-Tenant", tenant_);
  return out;
}

Task<Guest::Ended> Guest::run(Command command, Hear hear) {
  json::object env;
  for (const auto& [name, value] : command.env) env[name] = value;
  json::object body{{"env", std::move(env)}, {"user", command.user}, {"cwd", command.cwd}, {"time_limit_ms", command.limit.count()}};
  if (command.argv.empty())
    body["command"] = command.line;
  else
    body["argv"] = json::value_from(command.argv);
  http::Request create = request("POST", "commands");
  create.headers.set("Content-Type", "application/json");
  create.body = json::serialize(body);
  CO_TRY(const http::Response made, co_await node_.forwarding().call(std::move(create)));
  CO_TRY(const json::object answer, parse_json_object(made.body));
  JsonReader r(answer);
  r.ignore_unknown();
  const std::string session = r.text("session", 1, 64);
  CO_TRY_VOID(r.done());
  http::Request attach = request("GET", fmt::format("commands/{}/attach", percent_encode(session)));
  attach.headers.set("Accept", "text/event-stream");
  CO_TRY(const std::unique_ptr<http::ClientStream> stream, co_await node_.forwarding().open(std::move(attach)));
  CO_TRY_VOID(co_await stream->finish_request());
  CO_TRY(const http::Response head, co_await stream->head());
  if (head.status != 200) {
    CO_TRY(const std::string text, co_await stream->read_all(64 << 10));
    co_return fail(http::error_from_response(head.status, text));
  }
  stream->set_body_timeout(kSilence);
  http::SseReader events(kEventLimit);
  std::string buffer(16 << 10, '\0');
  Ended ended;
  for (bool over = false; !over;) {
    auto got = co_await stream->read(std::as_writable_bytes(std::span(buffer)));
    if (!got) co_return odd(got.error().message);
    if (*got == 0) co_return odd("no exit status came");
    CO_TRY(const auto batch, events.feed(std::string_view(buffer).substr(0, *got)));
    for (const http::SseEvent& event : batch) CO_TRY_VOID(take(event, hear, ended, over));
  }
  co_return ended;
}

Task<> Guest::write(std::string path, std::string text, std::string mode) {
  const auto whole = std::make_shared<const std::string>(std::move(text));
  const std::uint64_t length = whole->size();
  auto piece = [whole](std::uint64_t at) -> Result<std::string> { return whole->substr(at, kPiece); };
  co_return co_await put(std::move(path), std::move(mode), length, std::move(piece));
}

Task<> Guest::write(std::string path, Uploads::File file) {
  const auto from = std::make_shared<const Fd>(std::move(file.file));
  const std::uint64_t length = file.bytes;
  auto piece = [from, length](std::uint64_t at) -> Result<std::string> {
    std::string out(static_cast<std::size_t>(std::min<std::uint64_t>(kPiece, length - at)), '\0');
    TRY_VOID(pread_all(*from, std::as_writable_bytes(std::span(out)), at));
    return out;
  };
  co_return co_await put(std::move(path), "0600", length, std::move(piece));
}

Task<> Guest::put(std::string path, std::string mode, std::uint64_t length, std::function<Result<std::string>(std::uint64_t)> piece) {
  http::Request upload = request("PUT", fmt::format("files/content?path={}&user=root&mode={}&parents=1", percent_encode(path), mode));
  upload.headers.set("Content-Type", "application/octet-stream");
  CO_TRY(const std::unique_ptr<http::ClientStream> stream,
         co_await node_.forwarding().open(std::move(upload), http::BodyKind::sized, length));
  for (std::uint64_t at = 0; at < length;) {
    auto read = [&piece, at] { return piece(at); };
    CO_TRY(const std::string bytes, co_await pool_.run(read));
    // An answer before the end says why nothing more is taken.
    if (auto sent = co_await stream->write(as_bytes(bytes)); !sent) break;
    at += bytes.size();
  }
  (void)co_await stream->finish_request();
  CO_TRY(const http::Response head, co_await stream->head());
  CO_TRY(const std::string text, co_await stream->read_all(64 << 10));
  if (head.status >= 400) co_return fail(http::error_from_response(head.status, text));
  co_return Result<>();
}

}  // namespace space::build
