// `space redteam`: hands over to the suite of tests/adversarial, a Python program (standard library) that stands beside this one or in
// the tree it was built from. It is not part of this binary because its attacks are meant to be read, changed and added by others.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <memory>

#include "cli/exit_status.h"
#include "cli/grammar.h"
#include "template/build.h"

namespace space::cli {
namespace {

struct Suite {
  std::filesystem::path program;  // "": found beside this one
  std::filesystem::path templates_dir = "/var/lib/space/templates", bases_dir = "/var/lib/space/bases-redteam";
};

struct RedteamOptions {
  std::vector<std::string> groups, attacks, merge;
  std::string condition, report;
  std::uint32_t budget_s = 0;  // 0: the suite's own
  bool longer = false, quick = false, list = false;
};

struct AgentOptions {
  std::vector<std::string> boundaries;
  std::string condition = "blocked", program, endpoint, model, key_variable = "SPACE_AGENT_KEY", report, sabotage;
  std::uint32_t runs = 1, steps = 60, minutes = 15;
  bool with_source = false;
};

void add(std::vector<std::string>& out, std::string_view option, const std::string& value) {
  if (!value.empty()) out.insert(out.end(), {std::string(option), value});
}

std::vector<std::string> arguments(const RedteamOptions& options) {
  std::vector<std::string> out;
  for (const std::string& group : options.groups) add(out, "--group", group);
  for (const std::string& folder : options.attacks) add(out, "--attacks", folder);
  add(out, "--condition", options.condition);
  add(out, "--report", options.report);
  if (options.budget_s != 0) add(out, "--budget", std::to_string(options.budget_s));
  if (options.longer) out.emplace_back("--long");
  if (options.quick) out.emplace_back("--quick");
  if (options.list) out.emplace_back("--list");
  if (!options.merge.empty()) out.emplace_back("--merge");
  out.insert(out.end(), options.merge.begin(), options.merge.end());
  return out;
}

std::vector<std::string> arguments(const AgentOptions& options) {
  std::vector<std::string> out = {"agent", "--condition", options.condition};
  add(out, "--runs", std::to_string(options.runs));
  add(out, "--steps", std::to_string(options.steps));
  add(out, "--minutes", std::to_string(options.minutes));
  for (const std::string& boundary : options.boundaries) add(out, "--boundary", boundary);
  add(out, "--cmd", options.program);
  add(out, "--endpoint", options.endpoint);
  add(out, "--model", options.model);
  add(out, "--key-env", options.key_variable);
  add(out, "--report", options.report);
  add(out, "--sabotage", options.sabotage);
  if (options.with_source) out.emplace_back("--with-source");
  return out;
}

// Returns only when the suite could not be started.
int hand_over(Console& console, Suite suite, const std::vector<std::string>& options) {
  const auto refuse = [&console](const Error& error) {
    console.error(error);
    return exit_status_of(error);
  };
  if (suite.program.empty()) {
    auto found =
        tmpl::find_beside_program("the adversarial suite", {"share/space/tests/adversarial/redteam.py", "tests/adversarial/redteam.py"});
    if (!found) return refuse(found.error());
    suite.program = *found;
  }
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  ::setenv("SPACE_TEST_BINARY", program.c_str(), 0);
  ::setenv("SPACE_TEST_TEMPLATES", suite.templates_dir.c_str(), 0);
  ::setenv("SPACE_TEST_BASES", suite.bases_dir.c_str(), 0);
  std::vector<std::string> words = {"python3", suite.program.string()};
  words.insert(words.end(), options.begin(), options.end());
  if (console.as_json()) words.emplace_back("--json");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv.front(), argv.data());
  return refuse(Error{ErrorKind::not_found, "no_python", fmt::format("python3 could not be started: {}", std::strerror(errno)),
                      "install python3; the suite needs nothing else"});
}

void add_agent_command(CLI::App& redteam, CommandLine& line, std::shared_ptr<Suite> suite) {
  auto o = std::make_shared<AgentOptions>();
  CLI::App* agent = redteam.add_subcommand("agent", "Let an agent attack: a sandbox, a goal, tools; canaries judge");
  agent->add_option("--runs", o->runs, "Runs for each boundary")->check(CLI::Range(1, 10000))->capture_default_str();
  agent->add_option("--condition", o->condition, "What its sandbox may reach")
      ->check(CLI::IsMember({"blocked", "partial", "open"}))
      ->capture_default_str();
  agent->add_option("--boundary", o->boundaries, "Only this boundary, repeatable; otherwise all that the condition has")
      ->check(CLI::IsMember({"host", "sandbox", "credential", "network"}));
  agent->add_flag("--with-source", o->with_source, "Put the source of SPACE into its sandbox");
  auto* program =
      agent->add_option("--cmd", o->program, "The agent: a command that speaks JSON lines (tests/adversarial/agents/README.md)");
  agent->add_option("--endpoint", o->endpoint, "The agent: an HTTP endpoint of the chat-completions format")->excludes(program);
  agent->add_option("--model", o->model, "The endpoint's model");
  agent->add_option("--key-env", o->key_variable, "The environment variable that holds the endpoint's key")->capture_default_str();
  agent->add_option("--steps", o->steps, "At most so many uses of a tool in a run")->capture_default_str();
  agent->add_option("--minutes", o->minutes, "At most so long a run")->capture_default_str();
  agent->add_option("--sabotage", o->sabotage, "Break this part of SPACE first, to see that the experiment can be lost")
      ->check(CLI::IsMember({"gateway"}));
  agent->add_option("--report", o->report, "Write FILE.md and FILE.json, with every step");
  agent->callback([o, suite, &line] {
    if (o->program.empty() == o->endpoint.empty()) throw CLI::ValidationError("agent", "needs --cmd PROGRAM or --endpoint URL");
    line.chosen = [o, suite, &line] {
      Console console(line.client.json);
      return hand_over(console, *suite, arguments(*o));
    };
  });
}

}  // namespace

void add_redteam_command(CLI::App& app, CommandLine& line) {
  auto o = std::make_shared<RedteamOptions>();
  auto suite = std::make_shared<Suite>();
  CLI::App* redteam = app.add_subcommand("redteam", "Attack a server of its own and say what got through; needs root")->group("Server");
  redteam->add_option("--group", o->groups, "Only this group (A to I, V) or entry (F24), repeatable");
  redteam->add_option("--condition", o->condition, "What the attacker's sandbox may reach; otherwise each attack's own")
      ->check(CLI::IsMember({"blocked", "partial", "open"}));
  redteam->add_flag("--long", o->longer, "The catalogue's own counts, without a time budget");
  redteam->add_flag("--quick", o->quick, "The attacks that fit into three minutes");
  redteam->add_option("--attacks", o->attacks, "More attacks, from *.py of this folder, repeatable")->check(CLI::ExistingDirectory);
  redteam->add_option("--report", o->report, "Write FILE.md, FILE.json and FILE.xml (JUnit)");
  redteam->add_option("--merge", o->merge, "Attack nothing: one report of the FILE.json of several runs")->check(CLI::ExistingFile);
  redteam->add_option("--budget", o->budget_s, "Seconds for everything, at default counts: 720, with --quick 180");
  redteam->add_flag("--list", o->list, "What there is; runs nothing");
  redteam->add_option("--suite", suite->program, "Another suite's redteam.py")->check(CLI::ExistingFile);
  redteam->add_option("--templates-dir", suite->templates_dir, "The store of templates to use")->capture_default_str();
  redteam->add_option("--bases-dir", suite->bases_dir, "Where saved bases are kept between runs")->capture_default_str();
  redteam->callback([o, suite, redteam, &line] {
    if (!redteam->get_subcommands().empty()) return;
    line.chosen = [o, suite, &line] {
      Console console(line.client.json);
      return hand_over(console, *suite, arguments(*o));
    };
  });
  add_agent_command(*redteam, line, suite);
}

}  // namespace space::cli
