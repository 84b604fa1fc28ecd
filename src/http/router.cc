#include "http/router.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>

#include "base/log.h"

namespace space::http {
namespace {

bool is_param(const std::string& segment) { return segment.size() > 2 && segment.front() == '{' && segment.back() == '}'; }

bool matches(const std::vector<std::string>& pattern, const std::vector<std::string>& path) {
  return std::equal(pattern.begin(), pattern.end(), path.begin(), path.end(),
                    [](const std::string& want, const std::string& got) { return is_param(want) || want == got; });
}

// Of two patterns that match, the one with a literal where the other has a parameter, from the left.
bool more_exact(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (is_param(a[i]) != is_param(b[i])) return is_param(b[i]);
  return false;
}

}  // namespace

void Router::add(std::string_view method, std::string_view pattern, Handler handler) {
  Route route{std::string(method), std::string(pattern), {}, std::move(handler)};
  for (std::string_view rest = pattern.substr(1); !rest.empty();) {
    const std::size_t slash = rest.find('/');
    route.segments.emplace_back(rest.substr(0, slash));
    rest.remove_prefix(slash == rest.npos ? rest.size() : slash + 1);
  }
  for (const Route& other : routes_)
    if (other.method == route.method && other.pattern == route.pattern) {
      log::error("http.route_twice", {{"route", fmt::format("{} {}", method, pattern)}});
      std::abort();
    }
  routes_.push_back(std::move(route));
}

void Router::use(Middleware middleware) { middleware_.push_back(std::move(middleware)); }

Task<> Router::run(Exchange& exchange, const Handler& handler, std::size_t layers) const {
  if (layers == 0) co_return co_await handler(exchange);
  const Handler next = [this, &handler, layers](Exchange& e) { return run(e, handler, layers - 1); };
  co_return co_await middleware_[layers - 1](exchange, next);
}

Task<> Router::operator()(Exchange& exchange) const {
  if (exchange.target().refused) co_return fail(*exchange.target().refused);
  const auto& path = exchange.target().segments;
  const std::string& method = exchange.method();
  const Route* best = nullptr;
  std::vector<std::string> allowed;
  for (const Route& route : routes_) {
    if (!matches(route.segments, path)) continue;
    allowed.push_back(route.method);
    if (route.method == "GET") allowed.emplace_back("HEAD");
    const bool same = route.method == method;
    if (!same && !(method == "HEAD" && route.method == "GET")) continue;
    if (!best || more_exact(route.segments, best->segments) ||
        (best->method != method && same && !more_exact(best->segments, route.segments)))
      best = &route;
  }
  if (!best && allowed.empty())
    co_return fail(ErrorKind::not_found, "route_not_found", fmt::format("there is nothing at this path for {}", method),
                   "see /openapi.json for the paths of this API");
  if (!best) {
    std::sort(allowed.begin(), allowed.end());
    allowed.erase(std::unique(allowed.begin(), allowed.end()), allowed.end());
    Response answer =
        write_refusal_({ErrorKind::invalid_argument, "method_not_allowed", fmt::format("this path does not answer to {}", method),
                        fmt::format("use {}", fmt::join(allowed, ", "))});
    answer.headers.set("Allow", fmt::format("{}", fmt::join(allowed, ", ")));
    co_return co_await exchange.reply(std::move(answer));
  }
  for (std::size_t i = 0; i < path.size(); ++i)
    if (const std::string& name = best->segments[i]; is_param(name))
      exchange.params.insert_or_assign(name.substr(1, name.size() - 2), path[i]);
  co_return co_await run(exchange, best->handler, middleware_.size());
}

std::vector<std::string> Router::routes() const {
  std::vector<std::string> all;
  for (const Route& route : routes_) all.push_back(route.method + " " + route.pattern);
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace space::http
