#include "api/observed.h"

#include <algorithm>
#include <cstring>

#include "base/encoding.h"

namespace space::api {

Observed::Observed(http::Exchange& inner, std::string request_id) : inner_(inner), request_id_(std::move(request_id)) {
  params = inner.params;
  attributes = inner.attributes;
}

void Observed::preload(std::string body) {
  preloaded_ = std::move(body);
  preload_read_ = 0;
}

std::optional<std::uint64_t> Observed::content_length() const {
  if (preloaded_) return preloaded_->empty() ? std::nullopt : std::optional<std::uint64_t>(preloaded_->size());
  return inner_.content_length();
}

bool Observed::has_body() const { return preloaded_ ? !preloaded_->empty() : inner_.has_body(); }

Task<std::size_t> Observed::read(std::span<std::byte> into) {
  if (preloaded_) {
    const std::size_t count = std::min(into.size(), preloaded_->size() - preload_read_);
    std::memcpy(into.data(), preloaded_->data() + preload_read_, count);
    preload_read_ += count;
    co_return count;
  }
  auto got = co_await inner_.read(into);
  if (got) {
    digest_.add(into.first(*got));
    bytes_in_ += *got;
  }
  co_return got;
}

asio::awaitable<void> Observed::disconnected() {
  if (!keeper_) co_return co_await inner_.disconnected();
  for (;;) co_await sleep_for(std::chrono::hours(24));  // until it is cancelled
}

std::string Observed::body_digest() { return hex_encode(digest_.finish()); }

void Observed::hold_answer(std::size_t limit, Keeper keeper) {
  hold_limit_ = limit;
  keeper_ = std::move(keeper);
}

Task<> Observed::reply(http::Response response) {
  status_ = response.status;
  bytes_out_ += response.body.size();
  response.headers.set("Request-Id", request_id_);
  if (keeper_ && response.body.size() <= hold_limit_) CO_TRY_VOID(co_await keeper_(response.status, response.body));
  co_return co_await inner_.reply(std::move(response));
}

Task<> Observed::start(int status, http::Headers headers, std::optional<std::uint64_t> length) {
  status_ = status;
  headers.set("Request-Id", request_id_);
  if (!keeper_) co_return co_await inner_.start(status, std::move(headers), length);
  held_.emplace();
  held_->status = status;
  held_->headers = std::move(headers);
  held_length_ = length;
  co_return Result<>();
}

Task<std::unique_ptr<http::ByteStream>> Observed::upgrade(std::string protocol, http::Headers headers) {
  status_ = 101;
  headers.set("Request-Id", request_id_);
  co_return co_await inner_.upgrade(std::move(protocol), std::move(headers));
}

Task<> Observed::write(std::span<const std::byte> bytes) {
  bytes_out_ += bytes.size();
  if (held_ && held_->body.size() + bytes.size() <= hold_limit_) {
    held_->body += as_text(bytes);
    co_return Result<>();
  }
  if (held_) CO_TRY_VOID(co_await send_held());
  co_return co_await inner_.write(bytes);
}

// Too long to keep: from here on the answer goes straight through.
Task<> Observed::send_held() {
  http::Response held = std::move(*held_);
  held_.reset();
  CO_TRY_VOID(co_await inner_.start(held.status, std::move(held.headers), held_length_));
  co_return co_await inner_.write(as_bytes(held.body));
}

Task<> Observed::finish() {
  if (!held_) co_return co_await inner_.finish();
  http::Response held = std::move(*held_);
  held_.reset();
  held.headers.remove("Content-Length");
  held.headers.remove("Transfer-Encoding");
  CO_TRY_VOID(co_await keeper_(held.status, held.body));
  co_return co_await inner_.reply(std::move(held));
}

}  // namespace space::api
