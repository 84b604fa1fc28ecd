#include <CLI/CLI.hpp>
#include <memory>

#include "cli/grammar.h"
#include "cli/local_supply.h"

namespace space::cli {
namespace {

using Options = std::shared_ptr<SupplyOptions>;

// A verb about one template of this machine's store.
CLI::App* add_verb(CLI::App& templates, CommandLine& line, const char* verb, const char* what, const Options& o,
                   int (*command)(Console&, const SupplyOptions&)) {
  CLI::App* one = templates.add_subcommand(verb, what);
  one->add_option("template", o->reference, "NAME, NAME:TAG or sha256:DIGEST")->required();
  one->add_option("--data-dir", o->data_dir, "Data folder of the server")->capture_default_str();
  one->add_option("--templates-dir", o->templates_dir, "The store, when it is not below the data folder");
  one->callback([o, command, &line] {
    line.chosen = [o, command, &line] {
      Console console(line.client.json);
      return command(console, *o);
    };
  });
  return one;
}

}  // namespace

void add_supply_commands(CLI::App& templates, CommandLine& line) {
  const auto signing = std::make_shared<SupplyOptions>();
  add_verb(templates, line, "sign", "Sign a template of this machine, as root", signing, sign_template)
      ->add_option("--key", signing->key, "The signer's private key (PEM, Ed25519)")
      ->required();
  const auto verifying = std::make_shared<SupplyOptions>();
  add_verb(templates, line, "verify", "Look whether a template of this machine is what was signed", verifying, verify_template)
      ->add_option("--trust", verifying->trust, "A server's policy file to judge by; any signer when not given");
  add_verb(templates, line, "sbom", "Print a template's bill of materials (CycloneDX 1.5)", std::make_shared<SupplyOptions>(),
           print_template_sbom);

  CLI::App* keys = templates.add_subcommand("key", "Keys that sign templates");
  keys->require_subcommand(1);
  auto file = std::make_shared<std::filesystem::path>();
  CLI::App* create = keys->add_subcommand("create", "Make a key; its public half is printed, for policy files");
  create->add_option("file", *file, "Where the private key goes")->required();
  create->callback([file, &line] {
    line.chosen = [file, &line] {
      Console console(line.client.json);
      return create_signing_key(console, *file);
    };
  });
}

}  // namespace space::cli
