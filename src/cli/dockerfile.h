// A Dockerfile as the steps of a template build. What of it a template can do is taken; everything else is refused with its line and
// what to do in its place, so that nothing is silently another thing than with Docker.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace space::cli {

struct DockerStep {
  std::size_t line = 0;           // from 1
  std::string type;               // RUN, COPY, ENV, WORKDIR, USER
  std::vector<std::string> args;  // of COPY: sources…, destination
  std::string owner, mode;        // of COPY
};

struct Dockerfile {
  std::string parent;             // what FROM names
  std::vector<DockerStep> steps;  // with the user and the folder that Docker begins with, and those of a sandbox at the end
  std::string start;              // ENTRYPOINT and CMD as one line for the shell; "": none
};

// `arguments` replace the defaults of ARG; one that no ARG names is refused. invalid_argument/dockerfile, naming the line.
Result<Dockerfile> parse_dockerfile(std::string_view text, const std::map<std::string, std::string>& arguments);

// A word that a shell reads as `text`, whatever is in it.
std::string shell_quoted(std::string_view text);

}  // namespace space::cli
