#include "cli/probe.h"

#include <fmt/format.h>

#include "base/async.h"
#include "base/file.h"
#include "base/json.h"
#include "http/client.h"

namespace space::cli {
namespace {

Task<std::string> ask(http::Connector connector, std::string target) {
  http::ClientOptions options;
  options.connect_timeout = options.head_timeout = options.body_timeout = std::chrono::milliseconds(1'000);
  http::Client client(co_await asio::this_coro::executor, std::move(connector), options);
  http::Request request;
  request.target = std::move(target);
  auto answer = co_await client.call(std::move(request), 64 << 10);
  if (!answer) co_return tl::unexpected(answer.error());
  co_return std::move(answer->body);
}

// The loopback address where `url` is reached from this machine.
Result<ListenAddress> local_address(std::string_view url) {
  const auto scheme = url.find("://");
  TRY(ListenAddress where, parse_listen(url.substr(scheme == std::string_view::npos ? 0 : scheme + 3)));
  if (where.address == "0.0.0.0") where.address = "127.0.0.1";
  if (where.address == "::") where.address = "::1";
  return where;
}

Task<> ask_api(std::string url) {
  CO_TRY(const ListenAddress where, local_address(url));
  auto connector = http::tcp_connector(where.address, where.port);
  if (!url.starts_with("https:")) {
    auto health = co_await ask(std::move(connector), "/v1/health");
    co_return health ? Result<>() : tl::unexpected(health.error());
  }
  // The certificate is made for the public name, not for this address: an accepted connection has to do.
  auto connected = co_await connector();
  co_return connected ? Result<>() : tl::unexpected(connected.error());
}

Task<ServerFacts> ask_both(const ServerSettings& settings) {
  CO_TRY(std::string url, read_file(settings.address_file(), 256));
  while (url.ends_with('\n')) url.pop_back();
  CO_TRY_VOID(co_await ask_api(url));
  CO_TRY(const std::string info, co_await ask(http::unix_connector(settings.node_socket().string()), "/v1/info"));
  CO_TRY(const json::object parsed, parse_json_object(info, 64 << 10));
  JsonReader reader(parsed);
  reader.ignore_unknown();
  const std::string driver = reader.text("driver", 0, 64, "");
  const std::string version = reader.text("vmm_version", 0, 64, "");
  const std::string accelerator = reader.text("accelerator", 0, 64, "");
  CO_TRY_VOID(reader.done());
  co_return ServerFacts{std::move(url), fmt::format("{} {} on {}", driver, version, accelerator)};
}

}  // namespace

std::optional<ServerFacts> probe(const ServerSettings& settings) {
  asio::io_context loop;
  std::optional<ServerFacts> facts;
  spawn(loop.get_executor(), [](const ServerSettings& s, std::optional<ServerFacts>& into) -> asio::awaitable<void> {
    auto answer = co_await ask_both(s);
    if (answer) into = std::move(*answer);
  }(settings, facts));
  loop.run();
  return facts;
}

}  // namespace space::cli
