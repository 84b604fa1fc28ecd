#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands_egress.h"
#include "cli/grammar.h"

namespace space::cli {
namespace {

constexpr const char* kGroup = "Network";

void add_policy_commands(CLI::App& egress, CommandLine& line) {
  struct Options {
    std::string sandbox, method, url;
    std::vector<std::string> words;
  };
  auto o = std::make_shared<Options>();
  CLI::App* set =
      egress.add_subcommand("set", "Give a sandbox a policy, from this moment on. Status 75 when it is kept and not in force yet");
  set->add_option("sandbox", o->sandbox, "Its id")->required();
  set->add_option("policy", o->words, "none, open, a file, or presets; several are merged")->required();
  set->callback(choose(line, [o](Context& c) { return set_egress(c, o->sandbox, o->words); }));

  CLI::App* get = egress.add_subcommand("get", "Show a sandbox's policy and whether it is in force");
  get->add_option("sandbox", o->sandbox, "Its id")->required();
  get->callback(choose(line, [o](Context& c) { return get_egress(c, o->sandbox); }));

  CLI::App* explain =
      egress.add_subcommand("explain", "Say which rule decides about a request and why; sends nothing. Status 1 when it is refused");
  explain->add_option("sandbox", o->sandbox, "Its id")->required();
  explain->add_option("method", o->method, "GET, POST, …")->required();
  explain->add_option("url", o->url, "https://host/path")->required();
  explain->callback(choose(line, [o](Context& c) { return explain_egress(c, o->sandbox, o->method, o->url); }));

  CLI::App* observed = egress.add_subcommand("observed", "Print the allowlist that would have sufficed for what the sandbox did");
  observed->add_option("sandbox", o->sandbox, "Its id")->required();
  observed->callback(choose(line, [o](Context& c) { return observed_egress(c, o->sandbox); }));

  auto l = std::make_shared<EgressLogOptions>();
  CLI::App* log = egress.add_subcommand("log", "Show what the gateway decided, for one sandbox or all");
  log->add_option("sandbox", l->sandbox, "Its id");
  log->add_option("--after", l->after, "Only what came after this event");
  log->add_flag("-f,--follow", l->follow, "Go on with what happens from now on");
  log->callback(choose(line, [l](Context& c) { return egress_log(c, *l); }));
}

void add_preset_commands(CLI::App& egress, CommandLine& line) {
  CLI::App* preset = egress.add_subcommand("preset", "Policies that come along, or that this machine's settings give");
  preset->require_subcommand(1);
  preset->add_subcommand("ls", "List the presets")->callback([&line] { line.chosen = [&line] { return list_presets(line.client.json); }; });
  auto name = std::make_shared<std::string>();
  CLI::App* show = preset->add_subcommand("show", "Print a preset's policy");
  show->add_option("name", *name, "Its name")->required();
  show->callback([&line, name] { line.chosen = [name] { return show_preset(*name); }; });
  auto no_tools = std::make_shared<bool>(false);
  CLI::App* machine =
      preset->add_subcommand("from-machine", "Print a policy for the package servers of this machine: apt, pip, npm, cargo, go");
  machine->add_flag("--no-tools", *no_tools, "Read settings alone, without asking the tools for their defaults");
  machine->callback([&line, no_tools] { line.chosen = [no_tools] { return preset_from_machine(!*no_tools); }; });
}

void add_credential_commands(CLI::App& app, CommandLine& line) {
  CLI::App* credential =
      app.add_subcommand("credential", "Secrets that the gateway adds to requests, and that no sandbox sees")->group(kGroup);
  credential->require_subcommand(1);
  for (const bool rotate : {false, true}) {
    auto o = std::make_shared<CredentialOptions>();
    o->must_exist = rotate;
    CLI::App* set = credential->add_subcommand(rotate ? "rotate" : "set",
                                               rotate ? "Replace the secret of a credential" : "Store a secret; it is never shown again");
    set->add_option("name", o->name, "Its name")->required();
    auto* file = set->add_option("--file", o->file, "Where the secret is; standard input when not given");
    set->add_option("--from-env", o->environment, "A variable that holds it")->excludes(file);
    auto* key = set->add_option("--key", o->key, "The gateway's public key, from its operator; the server is asked for it when not given");
    set->add_flag("--plain", o->plain, "Send the secret as it is, not sealed to the gateway's key")->excludes(key);
    set->callback(choose(line, [o](Context& c) { return set_credential(c, *o); }));
  }
  credential->add_subcommand("ls", "List names and versions")->callback(choose(line, [](Context& c) { return list_credentials(c); }));
  auto name = std::make_shared<std::string>();
  CLI::App* rm = credential->add_subcommand("rm", "Forget a secret");
  rm->add_option("name", *name, "Its name")->required();
  rm->callback(choose(line, [name](Context& c) { return remove_credential(c, *name); }));
}

void add_port_commands(CLI::App& app, CommandLine& line) {
  struct Options {
    std::string sandbox, port;
  };
  auto o = std::make_shared<Options>();
  CLI::App* ports = app.add_subcommand("port", "Which servers of a sandbox anybody may reach")->group(kGroup);
  ports->require_subcommand(1);
  CLI::App* ls = ports->add_subcommand("ls", "List the public ports");
  ls->add_option("sandbox", o->sandbox, "Its id")->required();
  ls->callback(choose(line, [o](Context& c) { return list_public_ports(c, o->sandbox); }));
  CLI::App* token = ports->add_subcommand("token", "Show the token that opens the private ports of a sandbox");
  token->add_option("sandbox", o->sandbox, "Its id")->required();
  token->callback(choose(line, [o](Context& c) { return traffic_token(c, o->sandbox); }));
  for (const bool open : {true, false}) {
    CLI::App* change = ports->add_subcommand(open ? "open" : "close", open ? "Make a port public" : "Make a port private again");
    change->add_option("sandbox", o->sandbox, "Its id")->required();
    change->add_option("port", o->port, "1 to 65535")->required();
    change->callback(choose(line, [o, open](Context& c) { return change_port(c, o->sandbox, o->port, open); }));
  }
}

}  // namespace

void add_network_commands(CLI::App& app, CommandLine& line) {
  CLI::App* egress = app.add_subcommand("egress", "What a sandbox may reach")->group(kGroup);
  egress->require_subcommand(0, 1);  // the role of the same name is started by serve (grammar_server.cc)
  add_policy_commands(*egress, line);
  add_preset_commands(*egress, line);
  add_credential_commands(app, line);
  add_port_commands(app, line);
}

}  // namespace space::cli
