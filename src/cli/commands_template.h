// Templates made on a server: builds with their logs, and publishing what a sandbox is now.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/client.h"

namespace space::cli {

struct ServerBuildOptions {
  std::string tag;                      // NAME or NAME:TAG of the result
  std::filesystem::path context = ".";  // where COPY's files lie
  std::filesystem::path dockerfile;     // "": <context>/Dockerfile, unless parent or image is given
  std::string parent;                   // --from NAME
  std::string image;                    // --image: a file, a folder, or docker://REFERENCE
  std::vector<std::string> arguments;   // NAME=VALUE
  std::string start, ready;
  std::uint32_t cpus = 0, memory_mib = 0, disk_mib = 0;
  bool no_cache = false;
};
Task<int> build_on_server(Context& context, ServerBuildOptions options);
// `source`: a sandbox's id or a checkpoint's.
Task<int> publish_template(Context& context, std::string source, std::string name);
Task<int> list_builds(Context& context);
Task<int> cancel_build(Context& context, std::string build);

}  // namespace space::cli
