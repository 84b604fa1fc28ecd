#include "http/client.h"

#include "http/client_exchange.h"

namespace space::http {

Client::Client(asio::any_io_executor executor, Connector connector, ClientOptions options)
    : pool_(std::make_shared<ClientPool>(std::move(executor), std::move(connector), std::move(options))) {}

Client::~Client() {
  pool_->closed = true;
  pool_->close_idle();
}

void Client::close_idle() { pool_->close_idle(); }

Task<std::unique_ptr<ClientStream>> Client::open(Request request, BodyKind body, std::uint64_t length) {
  CO_TRY(std::unique_ptr<ClientStream> stream, co_await ClientExchange::make(pool_, std::move(request), body, length, std::string()));
  co_return stream;
}

Task<Response> Client::request(Request request, std::size_t body_limit) {
  std::string payload = std::move(request.body);
  const BodyKind kind = payload.empty() ? BodyKind::none : BodyKind::sized;
  const std::size_t length = payload.size();
  CO_TRY(auto exchange, co_await ClientExchange::make(pool_, std::move(request), kind, length, std::move(payload)));
  const auto sent = co_await exchange->finish_request();
  // An early answer (too large, not allowed) counts more than that the body could not be sent to its end.
  auto response = co_await exchange->head();
  if (!response) co_return fail(sent ? response.error() : sent.error());
  CO_TRY(response->body, co_await exchange->read_all(body_limit));
  co_return std::move(*response);
}

Task<Response> Client::call(Request call_request, std::size_t body_limit) {
  CO_TRY(Response response, co_await request(std::move(call_request), body_limit));
  if (response.status >= 400) co_return fail(error_from_response(response.status, response.body));
  co_return response;
}

}  // namespace space::http
