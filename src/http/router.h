// Patterns like "/v1/sandboxes/{id}/files": a segment in braces matches one non-empty segment and becomes a param.
// A known path with another method is 405 with Allow; an unknown path 404/route_not_found. HEAD falls back to GET.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "http/server.h"

namespace space::http {

class Router {
 public:
  void add(std::string_view method, std::string_view pattern, Handler handler);
  // Wraps every handler added so far and later; the last one added runs first. `next` runs the rest.
  using Middleware = std::function<Task<>(Exchange&, const Handler& next)>;
  void use(Middleware middleware);
  // How 405 is written, for clients who expect another form of errors than RFC 9457's.
  void write_refusals(std::function<Response(const Error&)> write) { write_refusal_ = std::move(write); }
  Task<> operator()(Exchange& exchange) const;
  // "GET /v1/sandboxes/{id}", sorted: compared with the OpenAPI file in tests.
  std::vector<std::string> routes() const;

 private:
  struct Route {
    std::string method;
    std::string pattern;
    std::vector<std::string> segments;
    Handler handler;
  };
  Task<> run(Exchange& exchange, const Handler& handler, std::size_t layers) const;
  std::vector<Route> routes_;
  std::vector<Middleware> middleware_;
  std::function<Response(const Error&)> write_refusal_ = problem;
};

}  // namespace space::http
