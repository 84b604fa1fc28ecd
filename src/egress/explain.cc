#include "egress/explain.h"

#include <fmt/format.h>

#include "egress/dialer.h"
#include "egress/http_request.h"

namespace space::egress {
namespace {

std::string_view text_of(Verdict::Handling handling) {
  switch (handling) {
    case Verdict::Handling::refuse:
      return "refuse";
    case Verdict::Handling::inspect_http:
      return "inspect_http";
    case Verdict::Handling::terminate_tls:
      return "terminate_tls";
    case Verdict::Handling::tunnel:
      return "tunnel";
    case Verdict::Handling::splice:
      return "splice";
  }
  return "refuse";
}

}  // namespace

Result<json::object> explain(const Settings& settings, std::string_view method, std::string_view url,
                             const std::vector<Cidr>& allowed_ranges, const std::set<Address>& own) {
  auto bad = [](std::string_view why) {
    return fail(ErrorKind::invalid_argument, "bad_url", fmt::format("the URL {}", why),
                "write https://host/path, http://host/path or tcp://host:port");
  };
  const auto scheme_end = url.find("://");
  if (scheme_end == std::string_view::npos) return bad("has no scheme");
  const std::string_view scheme = url.substr(0, scheme_end);
  const bool tls = scheme == "https", tcp = scheme == "tcp";
  if (!tls && !tcp && scheme != "http") return bad("has another scheme than https, http and tcp");
  std::string_view rest = url.substr(scheme_end + 3);
  const auto path_at = rest.find_first_of("/?");
  const std::string_view authority = rest.substr(0, path_at);
  std::string target(path_at == std::string_view::npos ? "/" : rest.substr(path_at));
  if (target.starts_with('?')) target.insert(0, "/");
  const auto host = parse_authority(authority, tls ? 443 : tcp ? 0 : 80);
  if (!host) return fail(host.error());
  if (host->port == 0) return bad("needs a port");

  const Destination to{host->name, host->address, host->port};
  const Policy& policy = *settings.policy;
  json::array steps;
  Verdict verdict;
  std::string credential, handling = "refuse", reason;
  bool allowed = false;
  const auto finish = [&] {
    json::object out{{"allowed", allowed},   {"rule", verdict.rule}, {"reason", reason},
                     {"handling", handling}, {"port", to.port},      {"steps", std::move(steps)}};
    if (!to.name.empty()) out["name"] = to.name;
    if (to.address) out["address"] = to.address->text();
    if (credential.empty())
      out["credential"] = nullptr;
    else
      out["credential"] = credential;
    return out;
  };
  if (!to.name.empty()) {
    const bool resolvable = policy.resolvable(to.name) && to.name.find('.') != std::string::npos;
    steps.emplace_back(resolvable ? fmt::format("DNS answers {} with an address of this sandbox's own", to.name)
                                  : fmt::format("DNS answers that {} does not exist: no rule allows it", to.name));
    if (!resolvable) {
      verdict = policy.connect(to);
      reason = verdict.allowed ? "the name is not answered" : verdict.reason;
      return finish();
    }
  } else if (const auto refused = address_refusal(*to.address, allowed_ranges, own)) {
    reason = *refused + ", which the operator does not permit";
    steps.emplace_back(reason);
    return finish();
  }
  verdict = policy.connect(to);
  steps.emplace_back(fmt::format("the connection to {} port {} is {}: {}", to.name.empty() ? to.address->text() : to.name, to.port,
                                 verdict.allowed ? "accepted" : "refused", verdict.reason));
  reason = verdict.reason;
  if (!verdict.allowed) return finish();
  const auto how = handling_of(verdict, settings, to);
  handling = text_of(how);
  if (how == Verdict::Handling::tunnel || how == Verdict::Handling::splice) {
    steps.emplace_back("its bytes are passed on unread: this trusts everything that answers behind that address");
    allowed = true;
    return finish();
  }
  if (tcp || tls != (how == Verdict::Handling::terminate_tls)) {
    reason = tls ? "this port is allowed for plain HTTP" : "this port is allowed for TLS";
    steps.emplace_back("the connection speaks something else than the rule allows: " + reason);
    return finish();
  }
  http::Head head;
  head.method = method;
  head.target = target;
  head.headers.set("Host", std::string(authority));
  auto request = check_request(head, to, tls, settings);
  if (!request) {
    verdict.rule = request.error().rule;
    reason = request.error().error.message;
    handling = "refuse";
    steps.emplace_back(fmt::format("the request is answered with {}: {}", request.error().status, reason));
    return finish();
  }
  verdict = policy.request(to, method, request->path);
  allowed = true;
  reason = verdict.reason;
  steps.emplace_back(fmt::format("the request {} {} passes: {}", method, request->path, verdict.reason));
  for (const Binding& b : settings.bindings)
    if (tls && credential.empty() && b.matches(to.name, to.port, method, request->path)) {
      credential = b.credential;
      steps.emplace_back(
          fmt::format("the credential {} is put in{}", b.credential, b.placeholder.empty() ? "" : " where its placeholder stands"));
    }
  return finish();
}

}  // namespace space::egress
