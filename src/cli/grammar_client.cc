#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.h"
#include "cli/copy.h"
#include "cli/exit_status.h"
#include "cli/grammar.h"

namespace space::cli {
namespace {

void add_create_options(CLI::App& app, CreateOptions& o, bool positional = true) {
  app.add_option(positional ? "-t,--template,template" : "-t,--template", o.template_name, "Template: name, name:tag or sha256:…")
      ->capture_default_str();
  app.add_option("--cpus", o.cpus, "Virtual CPUs");
  app.add_option("--memory", o.memory_mib, "Memory in MiB");
  app.add_option("--disk", o.disk_mib, "Size of the disk in MiB");
  app.add_option("-m,--metadata", o.metadata, "key=value, to find it again; may be repeated")->allow_extra_args(false);
  app.add_option("--egress", o.egress, "What it may reach: none, open, a file, or a preset; may be repeated")->allow_extra_args(false);
  app.add_option("--ttl", o.time_limit_s, "Delete the sandbox after so many seconds");
  app.add_flag("--suspend-at-ttl", o.suspend_at_limit, "Suspend it then, in place of deleting it; the next request wakes it");
  app.add_option("--idle-pause", o.idle_pause_s, "Pause it after so many seconds without use; the next request wakes it");
  app.add_option("--idle-suspend", o.idle_suspend_s, "Suspend it after so many seconds without use; the next request wakes it");
  app.add_option("--idle-cpu", o.idle_cpu_percent, "What it may compute while it is idle, in percent of a core; 5 otherwise")
      ->check(CLI::Range(1, 100));
}

void add_command_options(CLI::App& app, CommandOptions& o) {
  app.add_option("-c,--shell", o.shell, "One line for the guest's shell, in place of a command");
  app.add_option("-w,--cwd", o.cwd, "Folder to start in; the user's home otherwise");
  app.add_option("-u,--user", o.user, "User to run as; the template's otherwise");
  app.add_option("--time-limit", o.time_limit_s, "End the command after so many seconds");
  app.add_flag("--no-stdin", o.no_stdin, "Give it no input, even when there is some");
}

void add_env(CLI::App& app, std::vector<std::string>& env) {
  app.add_option("-e,--env", env, "NAME=value, or NAME to hand on your own; may be repeated")->allow_extra_args(false);
}

// The command in `line`, or the --shell line; one of them must be there.
CommandOptions with_command(const CommandLine& line, CommandOptions options) {
  options.argv = line.guest;
  if (options.argv.empty() == options.shell.empty())
    throw CLI::ValidationError("command", "give either a command or --shell 'a line for the shell'");
  return options;
}

void add_run(CLI::App& app, CommandLine& line) {
  struct Options {
    CreateOptions create;
    CommandOptions command;
    bool keep = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* run_ =
      app.add_subcommand("run", "Run a command in a new sandbox, show its output, delete the sandbox")->group("Commands in sandboxes");
  run_->footer(
      "Written: space run [OPTIONS] COMMAND…\n         space run [OPTIONS] --shell 'LINE'\n"
      "Without --ttl or --keep the sandbox ends after a day at the latest.");
  add_create_options(*run_, o->create);
  add_command_options(*run_, o->command);
  add_env(*run_, o->command.env);
  run_->add_flag("--tty", o->command.tty, "Give it a terminal");
  run_->add_flag("--keep", o->keep, "Leave the sandbox running");
  run_->callback([o, &line] {
    const CommandOptions command = with_command(line, o->command);
    choose(
        line, [o, command](Context& c) { return run(c, o->create, command, o->keep); }, exit_status_of_command)();
  });
}

void add_exec_and_shell(CLI::App& app, CommandLine& line) {
  struct Options {
    std::string sandbox;
    CreateOptions create;
    CommandOptions command;
  };
  auto o = std::make_shared<Options>();
  CLI::App* exec_ = app.add_subcommand("exec", "Run a command in a sandbox")->group("Commands in sandboxes");
  exec_->footer("Written: space exec [OPTIONS] SANDBOX COMMAND…\n         space exec [OPTIONS] SANDBOX --shell 'LINE'");
  exec_->add_option("sandbox", o->sandbox, "Its id")->required();
  add_command_options(*exec_, o->command);
  add_env(*exec_, o->command.env);
  exec_->add_flag("--tty", o->command.tty, "Give it a terminal");
  exec_->callback([o, &line] {
    const CommandOptions command = with_command(line, o->command);
    choose(
        line, [o, command](Context& c) { return exec(c, o->sandbox, command); }, exit_status_of_command)();
  });

  auto s = std::make_shared<Options>();
  CLI::App* shell_ = app.add_subcommand("shell", "Open a terminal in a sandbox; without one, in a new one that goes with it")
                         ->group("Commands in sandboxes");
  shell_->footer(
      "Written: space shell [OPTIONS] [SANDBOX] [-- COMMAND…]\n"
      "Without --ttl a sandbox of its own ends after a day at the latest.");
  shell_->add_option("sandbox", s->sandbox, "Its id");
  add_create_options(*shell_, s->create, false);
  add_command_options(*shell_, s->command);
  add_env(*shell_, s->command.env);
  shell_->callback([s, &line] {
    s->command.argv = line.guest;
    choose(
        line, [s](Context& c) { return shell(c, s->sandbox, s->create, s->command); }, exit_status_of_command)();
  });
}

}  // namespace

std::function<void()> choose(CommandLine& line, std::function<Task<int>(Context&)> command, StatusOfError status_of) {
  return [&line, command = std::move(command), status_of] {
    line.chosen = [&line, command, status_of] { return run_client(line.client, command, status_of); };
  };
}

void add_client_options(CLI::App& app, CommandLine& line) {
  app.add_flag("--json", line.client.json, "Print JSON for programs");
  app.add_option("--url", line.client.connection.url, "The server (SPACE_URL; else http://127.0.0.1:7070)");
  app.add_option("--key-file", line.client.connection.key_file,
                 "File with the API key (SPACE_API_KEY, SPACE_KEY_FILE; else the server's first key)");
  app.add_option("--ca-file", line.client.connection.ca_file, "Certificates to trust (SPACE_CA_FILE; else the system's)");
}

void add_sandbox_commands(CLI::App& app, CommandLine& line) {
  const char* group = "Sandboxes";
  auto c = std::make_shared<CreateOptions>();
  CLI::App* create_ = app.add_subcommand("create", "Make a sandbox and print its id")->group(group);
  add_create_options(*create_, *c);
  create_->add_option("--from", c->checkpoint,
                      "A checkpoint to go on from, or a snapshot to boot from, in place of a template; its sandbox may be gone");
  add_env(*create_, c->env);
  create_->add_flag("--no-wait", c->no_wait, "Do not wait until it runs");
  create_->callback(choose(line, [c](Context& x) { return create(x, *c); }));

  auto l = std::make_shared<ListOptions>();
  CLI::App* ls = app.add_subcommand("ls", "List sandboxes")->group(group);
  ls->add_option("--state", l->state, "Only those in this state");
  ls->add_option("-m,--metadata", l->metadata, "Only those with key=value; may be repeated")->allow_extra_args(false);
  ls->add_flag("-q,--quiet", l->quiet, "Print ids alone");
  ls->callback(choose(line, [l](Context& x) { return list(x, *l); }));

  auto one = std::make_shared<std::string>();
  CLI::App* get = app.add_subcommand("get", "Show one sandbox")->group(group);
  get->add_option("sandbox", *one, "Its id")->required();
  get->callback(choose(line, [one](Context& x) { return show(x, *one); }));

  struct Several {
    std::vector<std::string> ids;
    bool no_wait = false;
  };
  auto r = std::make_shared<Several>();
  CLI::App* rm = app.add_subcommand("rm", "Delete sandboxes")->group(group);
  rm->add_option("sandbox", r->ids, "Their ids")->required();
  rm->add_flag("--no-wait", r->no_wait, "Do not wait until they are gone");
  rm->callback(choose(line, [r](Context& x) { return remove(x, r->ids, r->no_wait); }));

  auto f = std::make_shared<CopyOptions>();
  CLI::App* cp = app.add_subcommand("cp", "Copy files and folders into a sandbox or out of it")->group(group);
  cp->footer("Written: space cp FILE|FOLDER SANDBOX:PATH\n         space cp SANDBOX:PATH FILE|FOLDER");
  cp->add_option("from", f->from, "What to copy")->required();
  cp->add_option("to", f->to, "Where to")->required();
  cp->add_option("-u,--user", f->user, "User in the sandbox; the template's otherwise");
  cp->callback(choose(line, [f](Context& x) { return copy(x, *f); }));
}

void add_process_commands(CLI::App& app, CommandLine& line) {
  add_run(app, line);
  add_exec_and_shell(app, line);
  struct Options {
    std::string sandbox, session, signal;
    bool follow = false;
  };
  const char* group = "Commands in sandboxes";
  auto p = std::make_shared<Options>();
  CLI::App* ps = app.add_subcommand("ps", "List the commands of a sandbox")->group(group);
  ps->add_option("sandbox", p->sandbox, "Its id")->required();
  ps->callback(choose(line, [p](Context& x) { return processes(x, p->sandbox); }));

  auto k = std::make_shared<Options>();
  CLI::App* kill = app.add_subcommand("kill", "End a command, or send it a signal")->group(group);
  kill->add_option("sandbox", k->sandbox, "Its id")->required();
  kill->add_option("session", k->session, "The command's session, as ps shows it")->required();
  kill->add_option("-s,--signal", k->signal, "TERM, INT, HUP, …; KILL when not given");
  kill->callback(choose(line, [k](Context& x) { return signal_command(x, k->sandbox, k->session, k->signal); }));

  auto g = std::make_shared<Options>();
  CLI::App* log = app.add_subcommand("logs", "Show what a command wrote, as far as it is kept")->group(group);
  log->add_option("sandbox", g->sandbox, "Its id")->required();
  log->add_option("session", g->session, "The command's session, as ps shows it")->required();
  log->add_flag("-f,--follow", g->follow, "Go on until the command ends");
  log->callback(choose(line, [g](Context& x) { return logs(x, g->sandbox, g->session, g->follow); }));
}

}  // namespace space::cli
