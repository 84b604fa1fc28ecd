#include <fmt/format.h>

#include "agent/content.h"
#include "agent/file_request.h"
#include "agent/routes.h"
#include "agent/send_file.h"

namespace space::agent {
namespace {

constexpr std::size_t kPiece = 256 << 10;

Task<> get_content(Agent& agent, http::Exchange& exchange) {
  CO_TRY(FileRequest request, file_request(agent, exchange));
  auto work = [path = request.path] { return open_for_reading(path); };
  CO_TRY(const OpenedFile opened, co_await as_user(agent, request.identity, std::move(work)));
  http::Headers headers{{"Content-Type", "application/octet-stream"}};
  co_return co_await send_file(agent, exchange, opened, std::move(headers));
}

Result<UploadOptions> upload_options(const FileRequest& request, const http::Target& target) {
  UploadOptions options;
  TRY(options.parents, query_flag(target, "parents"));
  if (const auto mode = target.query_value("mode")) {
    if (mode->empty() || mode->size() > 4 || mode->find_first_not_of("01234567") != std::string::npos)
      return fail(ErrorKind::invalid_argument, "invalid_query", "mode must be an octal number", "send for example 0644");
    mode_t value = 0;
    for (const char c : *mode) value = value * 8 + static_cast<mode_t>(c - '0');
    options.mode = value;
  }
  if (const auto owner = target.query_value("owner"); owner && !owner->empty()) {  // "user" or "user:group"
    const std::size_t colon = owner->find(':');
    TRY(const User user, request.accounts->find(owner->substr(0, colon)));
    options.owner = user.uid;
    options.group = user.gid;
    if (colon != std::string::npos) {
      options.group = request.accounts->group_id(owner->substr(colon + 1));
      if (!options.group)
        return fail(ErrorKind::invalid_argument, "unknown_group", "there is no such group in the sandbox", "see /etc/group there");
    }
  }
  return options;
}

// Fills the buffer from the body; fewer bytes mean that the body is over.
Task<std::size_t> fill(http::Exchange& exchange, std::span<std::byte> buffer) {
  std::size_t filled = 0;
  while (filled < buffer.size()) {
    CO_TRY(const std::size_t n, co_await exchange.read(buffer.subspan(filled)));
    if (n == 0) break;
    filled += n;
  }
  co_return filled;
}

Task<> put_content(Agent& agent, http::Exchange& exchange) {
  CO_TRY(FileRequest request, file_request(agent, exchange));
  CO_TRY(UploadOptions options, upload_options(request, exchange.target()));
  // One byte more than a small body has, so that its end is seen and everything happens in one visit to the pool.
  std::vector<std::byte> piece(std::min<std::uint64_t>(exchange.content_length().value_or(kPiece) + 1, kPiece));
  std::optional<Upload> upload;
  for (;;) {
    CO_TRY(const std::size_t size, co_await fill(exchange, piece));
    const bool last = size < piece.size();
    auto work = [&, bytes = std::span(piece).first(size)]() -> Result<std::optional<Upload::Done>> {
      if (!upload) {
        TRY(upload, Upload::begin(request.path, options, request.identity.uid));
      }
      TRY_VOID(upload->write(bytes));
      if (!last) return std::nullopt;
      TRY(Upload::Done done, upload->commit());
      return done;
    };
    CO_TRY(const std::optional<Upload::Done> done, co_await as_user(agent, request.identity, std::move(work)));
    if (done) co_return co_await reply_json(exchange, done->created ? 201 : 200, to_json(done->entry, *request.accounts));
  }
}

}  // namespace

void add_content_routes(http::Router& router, Agent& agent) {
  router.add("GET", "/v1/files/content", [&agent](http::Exchange& x) { return get_content(agent, x); });
  router.add("PUT", "/v1/files/content", [&agent](http::Exchange& x) { return put_content(agent, x); });
}

}  // namespace space::agent
