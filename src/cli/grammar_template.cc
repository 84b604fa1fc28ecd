#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands_template.h"
#include "cli/grammar.h"
#include "cli/local_templates.h"

namespace space::cli {
namespace {

// One verb, two ways: with -t a server builds, in a sandbox; else this machine does, from a definition, as root.
void add_build(CLI::App& group, CommandLine& line) {
  struct Wanted {
    BuildTemplateOptions local;
    ServerBuildOptions server;
    std::string what;
  };
  auto o = std::make_shared<Wanted>();
  CLI::App* build = group.add_subcommand(
      "build", "Build a template: with -t on the server, from a Dockerfile, a template or an image; else here, from a definition");
  build->footer(
      "Written: space template build [-f Dockerfile] [CONTEXT] -t NAME:TAG\n         space template build --from NAME -t NAME:TAG\n"
      "         space template build --image ARCHIVE|FOLDER|docker://IMAGE -t NAME:TAG\n         space template build [NAME:TAG]");
  build->add_option("what", o->what, "With -t: the folder with the files to copy (.); else NAME or NAME:TAG of a definition (base:latest)");
  const char* server = "On a server";
  build->add_option("-t,--tag", o->server.tag, "What it is published as: NAME or NAME:TAG")->group(server);
  build->add_option("-f,--file", o->server.dockerfile, "The Dockerfile; CONTEXT/Dockerfile otherwise")
      ->check(CLI::ExistingFile)
      ->group(server);
  build->add_option("--from", o->server.parent, "The template to begin with; goes before FROM")->group(server);
  build->add_option("--image", o->server.image, "A docker archive, an OCI layout, or docker://IMAGE (needs skopeo here)")->group(server);
  build->add_option("--build-arg", o->server.arguments, "NAME=VALUE for an ARG; may be repeated")->allow_extra_args(false)->group(server);
  build->add_option("--start", o->server.start, "A line for the shell that runs in every sandbox from its beginning")->group(server);
  build->add_option("--ready", o->server.ready, "A line that succeeds once that has begun")->group(server);
  build->add_option("--cpus", o->server.cpus, "Virtual CPUs")->group(server);
  build->add_option("--memory", o->server.memory_mib, "Memory in MiB")->group(server);
  build->add_option("--disk", o->server.disk_mib, "Size of the disk in MiB")->group(server);
  build->add_flag("--no-cache", o->server.no_cache, "Run every step, whatever is kept")->group(server);
  const char* here = "On this machine, as root";
  build->add_option("--lock", o->local.config.lock, "Use exactly the packages of this lock")->check(CLI::ExistingFile)->group(here);
  build->add_option("--prepared", o->local.config.prepared, "A folder filled ahead by the scripts `rootfs` and `kernel`")
      ->check(CLI::ExistingDirectory)
      ->group(here);
  build->add_flag("--if-absent", o->local.config.if_absent, "Leave a published template alone, but bring its agent up to date")
      ->group(here);
  build->add_option("--recipes", o->local.config.recipes_dir, "Folder of definitions, when not the one of this program")->group(here);
  build->add_option("--agent", o->local.config.agent, "The agent, when not the one of this program")->group(here);
  build->add_option("--data-dir", o->local.data_dir, "Data folder of the server")->capture_default_str()->group(here);
  build->add_option("--templates-dir", o->local.config.templates_dir, "The store, when it is not below the data folder")->group(here);
  build->add_option("--cache-dir", o->local.config.cache_dir, "Where downloaded packages stay")->capture_default_str()->group(here);
  build->callback([o, &line, ask = choose(line, [o](Context& c) { return build_on_server(c, o->server); })] {
    if (!o->server.tag.empty()) {
      if (!o->what.empty()) o->server.context = o->what;
      return ask();
    }
    const ServerBuildOptions& s = o->server;
    if (!s.dockerfile.empty() || !s.parent.empty() || !s.image.empty())
      throw CLI::ValidationError("-t", "say what the template is to be called: -t NAME:TAG");
    if (!o->what.empty()) o->local.config.reference = o->what;
    line.chosen = [o, &line] {
      Console console(line.client.json);
      return build_template(console, o->local);
    };
  });
}

}  // namespace

void add_template_commands(CLI::App& templates, CommandLine& line) {
  add_build(templates, line);

  struct Publish {
    std::string source, name;
  };
  auto p = std::make_shared<Publish>();
  CLI::App* publish = templates.add_subcommand("publish", "Publish the disk of a sandbox or a checkpoint as a template");
  publish->add_option("source", p->source, "The sandbox's id, or the checkpoint's")->required();
  publish->add_option("name", p->name, "NAME or NAME:TAG; it stays what it is")->required();
  publish->callback(choose(line, [p](Context& c) { return publish_template(c, p->source, p->name); }));

  templates.add_subcommand("builds", "List builds")->callback(choose(line, list_builds));
  auto id = std::make_shared<std::string>();
  CLI::App* cancel = templates.add_subcommand("cancel", "End a build");
  cancel->add_option("build", *id, "Its id")->required();
  cancel->callback(choose(line, [id](Context& c) { return cancel_build(c, *id); }));
}

}  // namespace space::cli
