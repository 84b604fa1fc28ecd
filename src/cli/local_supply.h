// Where templates and this program come from: keys, signatures, bills of materials. On this machine's store, without a server; each
// function gives the exit status.
#pragma once

#include <filesystem>
#include <string>

#include "cli/console.h"

namespace space::cli {

struct SupplyOptions {
  std::string reference;        // of a template
  std::filesystem::path key;    // of whoever signs
  std::filesystem::path trust;  // policy to judge by; "": any signer
  std::filesystem::path data_dir = "/var/lib/space";
  std::filesystem::path templates_dir;  // "": <data_dir>/templates
};

int create_signing_key(Console& console, const std::filesystem::path& file);
int sign_template(Console& console, const SupplyOptions& options);
int verify_template(Console& console, const SupplyOptions& options);  // unsigned is an error too
int print_template_sbom(Console& console, const SupplyOptions& options);
int print_program_sbom(Console& console);

}  // namespace space::cli
