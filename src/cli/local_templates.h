// Templates worked on directly in this machine's store, by root and without a server: building, publishing, removing.
#pragma once

#include <string>

#include "cli/console.h"
#include "template/build.h"

namespace space::cli {

struct BuildTemplateOptions {
  tmpl::BuildConfig config;                           // agent and recipes_dir "": those that belong to this program
  std::filesystem::path data_dir = "/var/lib/space";  // the store is its templates/, unless config names another
};

// Blocks for minutes. Progress goes to standard error, the release to standard output. The exit status.
int build_template(Console& console, BuildTemplateOptions options);
int remove_local_template(Console& console, const std::filesystem::path& data_dir, const std::string& reference);

}  // namespace space::cli
