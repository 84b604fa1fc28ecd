#include "http/test_support.h"

namespace space::http {
namespace {

using namespace test;

Handler say(std::string text) {
  return [text](Exchange& exchange) -> Task<> {
    std::string all = text;
    for (const auto& [name, value] : exchange.params) all += " " + name + "=" + value;
    for (const auto& [name, value] : exchange.attributes) all += " " + value;
    co_return co_await exchange.reply(json_response(200, all));
  };
}

TEST(Router, FindsTheMostExactPatternAndNamesWhatIsAllowed) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Router router;
    router.add("GET", "/v1/{kind}/{id}", say("general"));
    router.add("GET", "/v1/sandboxes/{id}", say("sandbox"));
    router.add("DELETE", "/v1/sandboxes/{id}", say("delete"));
    router.add("GET", "/v1/sandboxes/mine", say("mine"));
    router.add("GET", "/", say("root"));
    RunningServer server(executor, router);
    Client client(executor, tcp_connector("127.0.0.1", server.port));
    const auto get = [&](std::string method, std::string target) -> asio::awaitable<std::string> {
      Request request;
      request.method = method;
      request.target = target;
      const auto response = co_await client.request(request);
      co_return response ? std::to_string(response->status) + " " + response->body + " " + std::string(response->headers.get("Allow"))
                         : response.error().code;
    };
    EXPECT_EQ(co_await get("GET", "/v1/sandboxes/a%2Fb"), "200 sandbox id=a/b ");
    EXPECT_EQ(co_await get("GET", "/v1/sandboxes/mine"), "200 mine ");
    EXPECT_EQ(co_await get("GET", "/v1/things/7"), "200 general id=7 kind=things ");
    EXPECT_EQ(co_await get("DELETE", "/v1/sandboxes/7"), "200 delete id=7 ");
    EXPECT_EQ(co_await get("HEAD", "/v1/sandboxes/7"), "200  ");
    EXPECT_EQ(co_await get("GET", "/"), "200 root ");
    EXPECT_TRUE((co_await get("POST", "/v1/sandboxes/7")).ends_with(" DELETE, GET, HEAD"));
    EXPECT_TRUE((co_await get("POST", "/v1/sandboxes/7")).starts_with("405 "));
    EXPECT_NE((co_await get("GET", "/v1/sandboxes")).find("route_not_found"), std::string::npos);
    EXPECT_EQ(router.routes().front(), "DELETE /v1/sandboxes/{id}");
  });
}

TEST(Router, MiddlewareRunsFromTheLastAddedInwards) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    Router router;
    for (const char* name : {"inner", "outer"})
      router.use([name](Exchange& exchange, const Handler& next) -> Task<> {
        exchange.attributes.emplace(std::to_string(exchange.attributes.size()), name);
        if (exchange.headers().has("stop")) co_return fail(ErrorKind::unauthenticated, "no_key", "no key");
        co_return co_await next(exchange);
      });
    router.add("GET", "/x", say("x"));
    RunningServer server(executor, router);
    Client client(executor, tcp_connector("127.0.0.1", server.port));
    Request request;
    request.target = "/x";
    EXPECT_EQ((co_await client.call(request)).value().body, "x outer inner");
    request.headers.set("Stop", "1");
    EXPECT_EQ((co_await client.call(request)).error().code, "no_key");
  });
}

}  // namespace
}  // namespace space::http
