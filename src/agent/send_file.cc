#include "agent/send_file.h"

#include <cerrno>
#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include "agent/range.h"
#include "base/json.h"

namespace space::agent {
namespace {

constexpr std::size_t kSendPiece = 256 << 10;

// Bytes at an offset. What lies in the page cache is read here on the loop; what must come from the disk, on the pool.
asio::awaitable<Result<std::size_t>> read_at(Agent& agent, const Fd& file, std::span<std::byte> into, std::uint64_t offset) {
  iovec part{into.data(), into.size()};
  const ssize_t cached = ::preadv2(file.get(), &part, 1, static_cast<off_t>(offset), RWF_NOWAIT);
  if (cached > 0) co_return static_cast<std::size_t>(cached);
  auto work = [fd = file.get(), into, offset]() -> Result<std::size_t> {
    for (;;) {
      const ssize_t n = ::pread(fd, into.data(), into.size(), static_cast<off_t>(offset));
      if (n >= 0) return static_cast<std::size_t>(n);
      if (errno != EINTR) return fail_errno(errno, "read");
    }
  };
  co_return co_await agent.pool.run(std::move(work));
}

std::string entity_tag(const struct stat& st) {
  return fmt::format("\"{:x}-{:x}-{:x}\"", st.st_ino, st.st_size, st.st_mtim.tv_sec * 1'000'000'000 + st.st_mtim.tv_nsec);
}

// Files of /proc and /sys say that they are empty and are not.
Task<> send_unsized(Agent& agent, http::Exchange& exchange, const Fd& file, http::Headers headers) {
  std::vector<std::byte> piece(kSendPiece);
  CO_TRY(std::size_t size, co_await read_at(agent, file, piece, 0));
  if (size == 0) {
    CO_TRY_VOID(co_await exchange.start(200, std::move(headers), 0));
    co_return co_await exchange.finish();
  }
  CO_TRY_VOID(co_await exchange.start(200, std::move(headers)));
  for (std::uint64_t at = 0; size > 0;) {
    CO_TRY_VOID(co_await exchange.write(std::span(piece).first(size)));
    at += size;
    CO_TRY(size, co_await read_at(agent, file, piece, at));
  }
  co_return co_await exchange.finish();
}

// Fills the buffer from the file's beginning; fewer bytes than it holds mean that the file ends there.
asio::awaitable<Result<std::size_t>> read_beginning(Agent& agent, const Fd& file, std::span<std::byte> into) {
  std::size_t filled = 0;
  while (filled < into.size()) {
    CO_TRY(const std::size_t n, co_await read_at(agent, file, into.subspan(filled), filled));
    if (n == 0) break;
    filled += n;
  }
  co_return filled;
}

http::Response range_refused(std::uint64_t size) {
  json::object body{{"type", "about:blank"},
                    {"title", "Range Not Satisfiable"},
                    {"status", 416},
                    {"code", "range_not_satisfiable"},
                    {"detail", fmt::format("the file has {} bytes", size)},
                    {"next", "ask for a range inside the file"}};
  http::Response response = http::json_response(416, json::serialize(body));
  response.headers.set("Content-Type", "application/problem+json");
  response.headers.set("Content-Range", fmt::format("bytes */{}", size));
  return response;
}

}  // namespace

Task<> send_file(Agent& agent, http::Exchange& exchange, const OpenedFile& opened, http::Headers headers) {
  const auto size = static_cast<std::uint64_t>(opened.status.st_size);
  // Files of /sys and their like say 4096 bytes, whatever they hold, and occupy no block. Such a file is asked itself where it ends,
  // and so is one that is read from its beginning anyway, before a length is promised.
  std::vector<std::byte> piece(std::min<std::uint64_t>(kSendPiece, size));
  const bool whole = exchange.method() != "HEAD" && exchange.headers().get("Range").empty();
  std::size_t begun = 0;  // bytes of the file's beginning that are in `piece`
  if (size > 0 && (whole || opened.status.st_blocks == 0)) {
    CO_TRY(begun, co_await read_beginning(agent, opened.file, piece));
    if (begun < piece.size()) {
      CO_TRY_VOID(co_await exchange.start(200, std::move(headers), begun));
      if (exchange.method() != "HEAD" && begun > 0) CO_TRY_VOID(co_await exchange.write(std::span(piece).first(begun)));
      co_return co_await exchange.finish();
    }
  }
  headers.set("Accept-Ranges", "bytes");
  headers.set("ETag", entity_tag(opened.status));
  if (size == 0 && exchange.method() != "HEAD") co_return co_await send_unsized(agent, exchange, opened.file, std::move(headers));

  ByteRange range{0, size, true};
  int status = 200;
  const std::string_view if_range = exchange.headers().get("If-Range");
  if (if_range.empty() || if_range == headers.get("ETag")) {
    if (const auto wanted = parse_range(exchange.headers().get("Range"), size)) {
      if (!wanted->satisfiable) {
        http::Response refused = range_refused(size);
        co_return co_await exchange.reply(std::move(refused));
      }
      range = *wanted;
      status = 206;
      headers.set("Content-Range", fmt::format("bytes {}-{}/{}", range.first, range.first + range.length - 1, size));
    }
  }
  CO_TRY_VOID(co_await exchange.start(status, std::move(headers), range.length));
  if (exchange.method() == "HEAD") co_return co_await exchange.finish();
  std::uint64_t at = range.first;
  const std::uint64_t end = range.first + range.length;
  if (whole && begun > 0) {
    CO_TRY_VOID(co_await exchange.write(std::span(piece).first(begun)));
    at = begun;
  }
  piece.resize(std::min<std::uint64_t>(piece.size(), range.length));
  while (at < end) {
    const auto want = static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), end - at));
    CO_TRY(const std::size_t n, co_await read_at(agent, opened.file, std::span(piece).first(want), at));
    // The promised length cannot be kept: the connection is cut by this error, so nobody takes the part for the whole.
    if (n == 0) co_return fail(ErrorKind::conflict, "file_changed", "the file became shorter while it was read", "read it again");
    CO_TRY_VOID(co_await exchange.write(std::span(piece).first(n)));
    at += n;
  }
  co_return co_await exchange.finish();
}

}  // namespace space::agent
