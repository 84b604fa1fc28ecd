#include "cli/commands_egress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/file.h"
#include "cli/egress_policy.h"
#include "cli/event_stream.h"
#include "cli/exit_status.h"
#include "cli/machine_settings.h"
#include "cli/sealing.h"

namespace space::cli {
namespace {

constexpr std::size_t kSecretLimit = 8192;

std::string egress_target(const std::string& sandbox) { return TargetBuilder("/v1/sandboxes").segment(sandbox).segment("egress").str(); }

void print_settings(Console& console, const json::object& settings) {
  if (console.as_json()) return console.value(settings);
  const json::object* policy = object_of(settings, "policy");
  const auto flag = [&](std::string_view name) {
    const json::value* value = settings.if_contains(name);
    return value && value->is_bool() && value->get_bool() ? "yes" : "no";
  };
  console.line(fmt::format("mode             {}", policy ? printable(text_of(*policy, "mode")) : "none"));
  console.line(fmt::format("generation       {}", number_of(settings, "generation")));
  console.line(fmt::format("in force         {}", flag("applied")));
  console.line(fmt::format("gateway serves   {}", flag("serving")));
  if (const json::array* rules = policy ? array_of(*policy, "rules") : nullptr)
    for (const json::value& rule : *rules) console.line("rule             " + printable(json::serialize(rule)));
  if (const json::array* credentials = array_of(settings, "credentials"))
    for (const json::value& binding : *credentials) console.line("credential       " + printable(json::serialize(binding)));
}

std::string log_line(const json::object& e) {
  std::string what = text_of(e, "name").empty() ? text_of(e, "address") : text_of(e, "name");
  if (number_of(e, "port") > 0) what += fmt::format(":{}", number_of(e, "port"));
  if (!text_of(e, "method").empty()) what = text_of(e, "method") + " " + what + text_of(e, "path");
  std::string why = text_of(e, "reason");
  if (why.empty() && !text_of(e, "rule").empty()) why = "rule " + text_of(e, "rule");
  if (number_of(e, "count") > 1) why += fmt::format("{}({} of them)", why.empty() ? "" : " ", number_of(e, "count"));
  return fmt::format("{} {} {:<10} {:<7} {}  {}", printable(text_of(e, "time")), printable(text_of(e, "sandbox")),
                     printable(text_of(e, "kind")), printable(text_of(e, "verdict")), printable(what), printable(why));
}

// The secret, wiped by whoever gets it. One line end behind it is not part of it.
Result<std::string> read_secret(const CredentialOptions& options) {
  if (!options.environment.empty()) {
    const char* value = std::getenv(options.environment.c_str());
    if (!value)
      return fail(ErrorKind::invalid_argument, "no_secret", fmt::format("the variable {} is not set", options.environment),
                  "set it, or give the secret on standard input");
    return std::string(value);
  }
  std::string secret;
  if (options.file.empty() || options.file == "-") {
    if (::isatty(STDIN_FILENO) != 0) std::fputs("space: type the secret, then Enter and Ctrl-D\n", stderr);
    TRY(secret, read_fd(Fd(::dup(STDIN_FILENO)), kSecretLimit + 1));
  } else {
    TRY(secret, read_file(options.file, kSecretLimit + 1));
  }
  if (secret.ends_with('\n')) secret.pop_back();
  if (secret.ends_with('\r')) secret.pop_back();
  return secret;
}

// The box that only the gateway opens.
Task<std::string> sealed(Context& context, const CredentialOptions& options, const std::string& secret) {
  CO_TRY(const json::object known, co_await context.api.get("/v1/credential-key"));
  const std::string key = options.key.empty() ? text_of(known, "key") : options.key;
  co_return seal_credential(key, text_of(known, "tenant"), options.name, secret);
}

std::string credential_target(const std::string& name) { return TargetBuilder("/v1/credentials").segment(name).str(); }
std::string ports_target(const std::string& sandbox) {
  return TargetBuilder("/v1/sandboxes").segment(sandbox).segment("public-ports").str();
}

void print_ports(Console& console, const json::object& answer) {
  if (console.as_json()) return console.value(answer);
  if (const json::array* ports = array_of(answer, "ports"))
    for (const json::value& port : *ports)
      if (port.is_object()) console.line(std::to_string(number_of(port.get_object(), "port")));
}

int print_error(const Error& error) {
  Console(false).error(error);
  return exit_status_of(error);
}

}  // namespace

Task<int> set_egress(Context& context, std::string sandbox, std::vector<std::string> words) {
  CO_TRY(json::object body, egress_settings(words));
  CO_TRY(const json::object answer, co_await context.api.send("PUT", egress_target(sandbox), std::move(body)));
  print_settings(context.console, answer);
  co_return in_force(context, sandbox, answer);
}

int in_force(Context& context, const std::string& sandbox, const json::object& settings) {
  const json::value* applied = settings.if_contains("applied");
  if (applied && applied->is_bool() && applied->get_bool()) return 0;
  context.console.note(
      fmt::format("space: the policy of {0} is kept and not in force yet: the gateway is away. Once it is back it gives the sandbox no "
                  "network until it knows the policy; space egress get {0} says when",
                  printable(sandbox)));
  return kTryAgain;
}

Task<int> check_in_force(Context& context, std::string sandbox) {
  CO_TRY(const json::object answer, co_await context.api.get(egress_target(sandbox)));
  co_return in_force(context, sandbox, answer);
}

Task<int> get_egress(Context& context, std::string sandbox) {
  CO_TRY(const json::object answer, co_await context.api.get(egress_target(sandbox)));
  print_settings(context.console, answer);
  co_return 0;
}

Task<int> explain_egress(Context& context, std::string sandbox, std::string method, std::string url) {
  json::object body{{"method", std::move(method)}, {"url", std::move(url)}};
  CO_TRY(const json::object answer, co_await context.api.send("POST", egress_target(sandbox) + "/explain", std::move(body)));
  const json::value* allowed = answer.if_contains("allowed");
  const bool yes = allowed && allowed->is_bool() && allowed->get_bool();
  if (context.console.as_json()) {
    context.console.value(answer);
    co_return yes ? 0 : 1;
  }
  context.console.line(fmt::format("{}: {}", yes ? "allowed" : "refused", printable(text_of(answer, "reason"))));
  if (const json::array* steps = array_of(answer, "steps"))
    for (const json::value& step : *steps)
      if (step.is_string()) context.console.line("  " + printable(step.get_string()));
  if (!text_of(answer, "credential").empty())
    context.console.line("  the gateway adds credential " + printable(text_of(answer, "credential")));
  co_return yes ? 0 : 1;
}

Task<int> observed_egress(Context& context, std::string sandbox) {
  CO_TRY(const json::object answer, co_await context.api.get(egress_target(sandbox) + "/observed"));
  const json::object* policy = object_of(answer, "policy");
  context.console.value(policy ? *policy : answer);  // a policy is JSON for people as well: it goes into a file
  if (const json::value* complete = answer.if_contains("complete"); complete && *complete == false)
    context.console.note("space: this is not all: the sandbox used more than 1,024 destinations, or a method that no rule can name");
  co_return 0;
}

Task<int> egress_log(Context& context, EgressLogOptions options) {
  TargetBuilder target(options.sandbox.empty() ? std::string("/v1/egress/log") : egress_target(options.sandbox) + "/log");
  EventStreamOptions stream_options;
  stream_options.last_id = options.after;
  const auto print = [&context](const http::SseEvent& event) {
    auto data = parse_json_object(event.data, 1 << 20);
    if (!data) return;
    context.console.result(*data, log_line(*data));
  };
  if (options.follow) {
    target.query("follow", "true");
    EventStream stream(context.api, target.str(), stream_options);
    for (;;) {
      CO_TRY(const std::optional<http::SseEvent> event, co_await stream.next());
      if (!event) co_return 0;
      print(*event);
    }
  }
  target.query_if("after", options.after);
  CO_TRY(const auto stream, co_await context.api.open("GET", target.str()));
  CO_TRY_VOID(co_await stream->finish_request());
  CO_TRY(const http::Response head, co_await stream->head());
  if (head.status >= 400) {
    CO_TRY(const std::string body, co_await stream->read_all(64 << 10));
    co_return fail(http::error_from_response(head.status, body));
  }
  http::SseReader reader(1 << 20);
  std::string buffer(64 << 10, '\0');
  for (;;) {
    CO_TRY(const std::size_t got, co_await stream->read(std::as_writable_bytes(std::span(buffer))));
    if (got == 0) co_return 0;
    CO_TRY(const auto events, reader.feed(std::string_view(buffer).substr(0, got)));
    for (const http::SseEvent& event : events) print(event);
  }
}

int list_presets(bool as_json) {
  const auto folder = find_presets();
  if (!folder) return print_error(folder.error());
  const auto presets = list_presets(*folder);
  if (!presets) return print_error(presets.error());
  Console console(as_json);
  json::array all;
  Table table({"PRESET", "DESCRIPTION"});
  for (const Preset& preset : *presets) {
    table.add({preset.name, preset.description});
    all.push_back(json::object{{"name", preset.name}, {"description", preset.description}, {"policy", preset.policy}});
  }
  if (as_json)
    console.value(all);
  else
    console.line(table.text());
  return 0;
}

int show_preset(const std::string& name) {
  const auto folder = find_presets();
  if (!folder) return print_error(folder.error());
  const auto preset = read_preset(*folder, name);
  if (!preset) return print_error(preset.error());
  Console(true).value(preset->policy);
  return 0;
}

int preset_from_machine(bool ask_tools) {
  const char* home = std::getenv("HOME");
  const auto sources = machine_sources("/", home && *home ? home : "/root", ask_tools);
  Console(true).value(sources_policy(sources));
  return 0;
}

Task<int> set_credential(Context& context, CredentialOptions options) {
  if (options.must_exist) {
    CO_TRY(const json::array known, co_await context.api.list("/v1/credentials", "credentials"));
    const bool there = std::any_of(known.begin(), known.end(), [&](const json::value& one) {
      return one.is_object() && text_of(one.get_object(), "name") == options.name;
    });
    if (!there)
      co_return fail(ErrorKind::not_found, "credential_not_found", fmt::format("there is no credential {} to rotate", options.name),
                     "make it: space credential set NAME");
  }
  auto work = [options] { return read_secret(options); };
  CO_TRY(std::string secret, co_await context.pool.run(std::move(work)));
  const std::string name = options.name;
  Result<std::string> box = fail(ErrorKind::internal, "not_sealed", "");
  if (!options.plain) {
    box = co_await sealed(context, options, secret);
    ::explicit_bzero(secret.data(), secret.size());
    if (!box) co_return fail(std::move(box).error());
  }
  const std::string& body_sent = options.plain ? secret : *box;
  std::string target = credential_target(name);
  if (!options.plain) target += "?sealed=true";
  auto opened = co_await context.api.open("PUT", std::move(target), http::BodyKind::sized, body_sent.size());
  Result<> sent;
  if (opened) sent = co_await (*opened)->write(std::as_bytes(std::span(body_sent)));
  ::explicit_bzero(secret.data(), secret.size());
  if (!opened) co_return fail(std::move(opened).error());
  if (sent) sent = co_await (*opened)->finish_request();
  CO_TRY(const http::Response head, co_await (*opened)->head());
  CO_TRY(const std::string body, co_await (*opened)->read_all(64 << 10));
  if (head.status >= 400) co_return fail(http::error_from_response(head.status, body));
  CO_TRY(const json::object answer, parse_json_object(body));
  context.console.result(answer, fmt::format("{} version {}", printable(text_of(answer, "name")), number_of(answer, "version")));
  co_return 0;
}

Task<int> list_credentials(Context& context) {
  CO_TRY(const json::object answer, co_await context.api.get("/v1/credentials"));
  if (context.console.as_json()) {
    context.console.value(answer);
    co_return 0;
  }
  Table table({"NAME", "VERSION", "UPDATED"});
  if (const json::array* all = array_of(answer, "credentials"))
    for (const json::value& one : *all)
      if (one.is_object())
        table.add({printable(text_of(one.get_object(), "name")), std::to_string(number_of(one.get_object(), "version")),
                   printable(text_of(one.get_object(), "updated_at"))});
  context.console.line(table.text());
  co_return 0;
}

Task<int> remove_credential(Context& context, std::string name) {
  CO_TRY(const json::object answer, co_await context.api.send("DELETE", credential_target(name)));
  context.console.result(answer, name);
  co_return 0;
}

Task<int> list_public_ports(Context& context, std::string sandbox) {
  CO_TRY(const json::object answer, co_await context.api.get(ports_target(sandbox)));
  print_ports(context.console, answer);
  co_return 0;
}

Task<int> change_port(Context& context, std::string sandbox, std::string port, bool is_public) {
  const std::string target = TargetBuilder(ports_target(sandbox)).segment(port).str();
  CO_TRY(const json::object answer, co_await context.api.send(is_public ? "PUT" : "DELETE", target));
  print_ports(context.console, answer);
  co_return 0;
}

Task<int> traffic_token(Context& context, std::string sandbox) {
  const std::string target = TargetBuilder("/v1/sandboxes").segment(sandbox).segment("traffic-token").str();
  CO_TRY(const json::object answer, co_await context.api.send("POST", target));
  if (context.console.as_json())
    context.console.value(answer);
  else
    context.console.line(printable(text_of(answer, "token")));
  co_return 0;
}

}  // namespace space::cli
