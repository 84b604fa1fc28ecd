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

struct RedteamOptions {
  std::vector<std::string> groups;
  std::string condition = "blocked";
  std::string report;
  std::uint32_t budget_s = 720;
  bool longer = false, list = false;
  std::filesystem::path suite;  // "": found beside the program
  std::filesystem::path templates_dir = "/var/lib/space/templates", bases_dir = "/var/lib/space/bases-redteam";
};

std::vector<std::string> arguments(const RedteamOptions& options, bool as_json) {
  std::vector<std::string> out = {"python3", options.suite.string(), "--condition", options.condition, "--budget", std::to_string(options.budget_s)};
  for (const std::string& group : options.groups) out.insert(out.end(), {"--group", group});
  if (!options.report.empty()) out.insert(out.end(), {"--report", options.report});
  if (options.longer) out.emplace_back("--long");
  if (options.list) out.emplace_back("--list");
  if (as_json) out.emplace_back("--json");
  return out;
}

// Returns only when the suite could not be started.
int hand_over(Console& console, RedteamOptions options) {
  const auto refuse = [&console](const Error& error) {
    console.error(error);
    return exit_status_of(error);
  };
  if (options.suite.empty()) {
    auto found = tmpl::find_beside_program("the adversarial suite", {"share/space/tests/adversarial/redteam.py", "tests/adversarial/redteam.py"});
    if (!found) return refuse(found.error());
    options.suite = *found;
  }
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  ::setenv("SPACE_TEST_BINARY", program.c_str(), 0);
  ::setenv("SPACE_TEST_TEMPLATES", options.templates_dir.c_str(), 0);
  ::setenv("SPACE_TEST_BASES", options.bases_dir.c_str(), 0);
  std::vector<std::string> words = arguments(options, console.as_json());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv.front(), argv.data());
  return refuse(Error{ErrorKind::not_found, "no_python", fmt::format("python3 could not be started: {}", std::strerror(errno)), "install python3; the suite needs nothing else"});
}

}  // namespace

void add_redteam_command(CLI::App& app, CommandLine& line) {
  auto o = std::make_shared<RedteamOptions>();
  CLI::App* redteam = app.add_subcommand("redteam", "Attack a server of its own and say what got through; needs root")->group("Server");
  redteam->add_option("--group", o->groups, "Only this group (A to I, V) or entry (F24), repeatable");
  redteam->add_option("--condition", o->condition, "What the attacker's sandbox may reach")->check(CLI::IsMember({"blocked", "partial", "open"}))->capture_default_str();
  redteam->add_flag("--long", o->longer, "The catalogue's own counts, without a time budget");
  redteam->add_option("--report", o->report, "Write FILE.md, FILE.json and FILE.xml (JUnit)");
  redteam->add_option("--budget", o->budget_s, "Seconds for everything, at default counts")->capture_default_str();
  redteam->add_flag("--list", o->list, "What there is; runs nothing");
  redteam->add_option("--suite", o->suite, "Another suite's redteam.py")->check(CLI::ExistingFile);
  redteam->add_option("--templates-dir", o->templates_dir, "The store of templates to use")->capture_default_str();
  redteam->add_option("--bases-dir", o->bases_dir, "Where saved bases are kept between runs")->capture_default_str();
  redteam->callback([o, &line] {
    line.chosen = [o, &line] {
      Console console(line.client.json);
      return hand_over(console, *o);
    };
  });
}

}  // namespace space::cli
