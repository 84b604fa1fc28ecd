#include "cli/dockerfile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>

#include "base/json.h"

namespace space::cli {
namespace {

constexpr std::size_t kMostBytes = 1 << 20;
constexpr std::string_view kBlank = " \t\r";

struct Line {
  std::size_t number = 0;
  std::string text;
};

tl::unexpected<Error> refuse(std::size_t line, std::string what, std::string next) {
  return fail(ErrorKind::invalid_argument, "dockerfile", fmt::format("line {}: {}", line, what), std::move(next));
}

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::string upper(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return out;
}

// Instructions, with lines that go on put together; comments inside them are left out, as Docker does.
Result<std::vector<Line>> instructions(std::string_view text) {
  std::vector<Line> out;
  bool open = false;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    const std::string_view bare = trim(line);
    if (bare.starts_with('#')) {
      if (out.empty() && upper(bare).find("ESCAPE=") != std::string::npos)
        return refuse(number, "another escape character", "write the file with backslashes");
      continue;
    }
    if (bare.empty()) continue;
    const bool more = bare.ends_with('\\');
    const std::string_view part = more ? bare.substr(0, bare.size() - 1) : bare;
    if (open)
      out.back().text += std::string(" ") + std::string(part);
    else
      out.push_back({number, std::string(part)});
    open = more;
  }
  return out;
}

// Words as Docker reads them: quotes and backslashes are taken away.
Result<std::vector<std::string>> words(const Line& line, std::string_view text) {
  std::vector<std::string> out;
  std::string word;
  bool any = false;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      if (text[i + 1] == '$') word += '\\';  // so that it is no variable later
      word += text[++i];
      any = true;
    } else if (quote != 0) {
      if (c == quote)
        quote = 0;
      else
        word += quote == '\'' && c == '$' ? std::string("\\$") : std::string(1, c);
    } else if (c == '"' || c == '\'') {
      quote = c;
      any = true;
    } else if (kBlank.find(c) != kBlank.npos) {
      if (any) out.push_back(std::move(word));
      word.clear();
      any = false;
    } else {
      word += c;
      any = true;
    }
  }
  if (quote != 0) return refuse(line.number, "a quote is not closed", "close it");
  if (any) out.push_back(std::move(word));
  return out;
}

// ["a", "b"], or nothing when it is no list.
std::optional<std::vector<std::string>> exec_form(std::string_view text) {
  if (!text.starts_with('[')) return std::nullopt;
  const auto value = parse_json(text, kMostBytes);
  if (!value || !value->is_array()) return std::nullopt;
  std::vector<std::string> out;
  for (const json::value& item : value->get_array()) {
    if (!item.is_string()) return std::nullopt;
    out.emplace_back(item.get_string());
  }
  return out;
}

std::string joined(const std::vector<std::string>& list) {
  std::string out;
  for (const std::string& one : list) out += (out.empty() ? "" : " ") + shell_quoted(one);
  return out;
}

bool is_variable(std::string_view name) {
  return !name.empty() && !std::isdigit(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

class Reader {
 public:
  explicit Reader(const std::map<std::string, std::string>& arguments) : arguments_(arguments) {}

  Result<> take(const Line& line) {
    const std::size_t space = std::min(line.text.find_first_of(kBlank), line.text.size());
    const std::string word = upper(std::string_view(line.text).substr(0, space));
    const std::string_view rest = trim(std::string_view(line.text).substr(space));
    if (rest.find("<<") != rest.npos && (word == "RUN" || word == "COPY" || word == "ADD") && is_heredoc(rest))
      return refuse(line.number, "a here-document", "put the text into a file beside the Dockerfile and COPY it");
    if (word == "ARG") return arg(line, rest);
    if (word == "FROM") return from(line, rest);
    if (out_.parent.empty()) return refuse(line.number, fmt::format("{} before FROM", word), "begin with FROM and the name of a template");
    if (word == "RUN") return run(line, rest);
    if (word == "COPY" || word == "ADD") return copy(line, word, rest);
    if (word == "ENV") return env(line, rest);
    if (word == "WORKDIR") return single(line, word, rest, has_folder_);
    if (word == "USER") return single(line, word, rest, has_user_);
    if (word == "CMD") return command(line, rest, cmd_, cmd_is_list_);
    if (word == "ENTRYPOINT") return command(line, rest, entrypoint_, entrypoint_is_list_);
    static const std::map<std::string, std::string, std::less<>> kNext{
        {"EXPOSE", "leave it out: every port of a sandbox can be reached, see docs/network.md"},
        {"LABEL", "leave it out, or give the sandbox metadata when it is made"},
        {"MAINTAINER", "leave it out"},
        {"VOLUME", "leave it out: a sandbox's files are its own and stay with its checkpoints"},
        {"HEALTHCHECK", "give the build a ready command: --ready 'LINE'"},
        {"SHELL", "write the shell into the RUN line: RUN sh -c '…'"},
        {"STOPSIGNAL", "leave it out"},
        {"ONBUILD", "write the line into the Dockerfile that it is meant for"}};
    const auto known = kNext.find(word);
    return refuse(line.number, fmt::format("{} is not understood", word.substr(0, 32)),
                  known != kNext.end() ? known->second : "use FROM, RUN, COPY, ADD, ENV, ARG, WORKDIR, USER, CMD and ENTRYPOINT");
  }

  Result<Dockerfile> finish() {
    if (out_.parent.empty()) return refuse(1, "there is no FROM", "begin with FROM and the name of a template");
    for (const auto& [name, value] : arguments_)
      if (!used_.contains(name)) return refuse(1, fmt::format("no ARG names '{}'", name), "leave that --build-arg out");
    // As in every sandbox, unless the file says otherwise.
    if (!has_user_) out_.steps.push_back({0, "USER", {"user"}, "", ""});
    if (!has_folder_) out_.steps.push_back({0, "WORKDIR", {"/home/user"}, "", ""});
    if (!entrypoint_.empty())
      out_.start = entrypoint_ + (cmd_is_list_ && entrypoint_is_list_ && !cmd_.empty() ? " " + cmd_ : "");
    else
      out_.start = cmd_;
    return std::move(out_);
  }

 private:
  static bool is_heredoc(std::string_view text) {
    const std::size_t at = text.find("<<");
    std::string_view word = text.substr(at + 2);
    if (word.starts_with('-')) word.remove_prefix(1);
    if (word.starts_with('"') || word.starts_with('\'')) word.remove_prefix(1);
    return (at == 0 || text[at - 1] == ' ') && !word.empty() && (std::isalpha(static_cast<unsigned char>(word[0])) || word[0] == '_');
  }

  Result<std::string> substituted(const Line& line, std::string_view text) const {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\\' && i + 1 < text.size() && text[i + 1] == '$') {
        out += text[++i];
        continue;
      }
      if (text[i] != '$') {
        out += text[i];
        continue;
      }
      const bool braced = i + 1 < text.size() && text[i + 1] == '{';
      std::size_t begin = i + (braced ? 2 : 1), end = begin;
      while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_')) ++end;
      const std::string name(text.substr(begin, end - begin));
      if (braced && (end >= text.size() || text[end] != '}'))
        return refuse(line.number, "a variable with more than its name", "write ${NAME} or $NAME");
      if (name.empty()) {
        out += text[i];
        continue;
      }
      const auto found = values_.find(name);
      if (found != values_.end()) out += found->second;
      i = braced ? end : end - 1;
    }
    return out;
  }

  Result<> from(const Line& line, std::string_view rest) {
    if (!out_.parent.empty())
      return refuse(line.number, "a second FROM", "build one template, then another from it; COPY --from is not there");
    TRY(const auto parts, words(line, rest));
    if (parts.empty() || parts[0].starts_with("--"))
      return refuse(line.number, "FROM with an option or without a name", "write FROM and the name of a template");
    if (parts.size() != 1 && !(parts.size() == 3 && upper(parts[1]) == "AS"))
      return refuse(line.number, "FROM takes one name", "write FROM NAME or FROM NAME:TAG");
    TRY(out_.parent, substituted(line, parts[0]));
    if (out_.parent == "scratch") return refuse(line.number, "FROM scratch", "begin with a template: 'space template ls' lists them");
    // Docker begins as root in /.
    out_.steps.push_back({line.number, "USER", {"root"}, "", ""});
    out_.steps.push_back({line.number, "WORKDIR", {"/"}, "", ""});
    return {};
  }

  Result<> arg(const Line& line, std::string_view rest) {
    TRY(const auto parts, words(line, rest));
    if (parts.empty()) return refuse(line.number, "ARG without a name", "write ARG NAME=VALUE");
    for (const std::string& part : parts) {
      const std::size_t equal = part.find('=');
      const std::string name = part.substr(0, equal);
      if (!is_variable(name)) return refuse(line.number, "ARG with a name that is none", "use letters, digits and '_'");
      const auto given = arguments_.find(name);
      used_.insert(name);
      std::optional<std::string> value;
      if (given != arguments_.end())
        value = given->second;
      else if (equal != part.npos) {
        TRY(value, substituted(line, std::string_view(part).substr(equal + 1)));
      } else if (const auto before = values_.find(name); before != values_.end())
        value = before->second;
      if (!value) continue;
      values_[name] = *value;
      if (!out_.parent.empty()) out_.steps.push_back({line.number, "ENV", {name, escaped(*value)}, "", ""});
    }
    return {};
  }

  // The server expands variables in values; these have been expanded here.
  static std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) out += c == '$' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    return out;
  }

  Result<> env(const Line& line, std::string_view rest) {
    TRY(const auto parts, words(line, rest));
    if (parts.empty()) return refuse(line.number, "ENV without a name", "write ENV NAME=VALUE");
    DockerStep step{line.number, "ENV", {}, "", ""};
    const auto add = [&](const std::string& name, std::string_view value) -> Result<> {
      if (!is_variable(name)) return refuse(line.number, "ENV with a name that is none", "use letters, digits and '_'");
      TRY(values_[name], substituted(line, value));
      step.args.push_back(name);
      step.args.emplace_back(value);  // with its variables: those of the template are known to the server alone
      return {};
    };
    if (parts[0].find('=') == std::string::npos) {
      const std::size_t space = std::min(rest.find_first_of(kBlank), rest.size());
      if (space == rest.size()) return refuse(line.number, "ENV without a value", "write ENV NAME=VALUE");
      TRY_VOID(add(parts[0], trim(rest.substr(space))));
    } else {
      for (const std::string& part : parts) {
        const std::size_t equal = part.find('=');
        if (equal == part.npos) return refuse(line.number, "ENV with a word that is no NAME=VALUE", "quote values with spaces");
        TRY_VOID(add(part.substr(0, equal), std::string_view(part).substr(equal + 1)));
      }
    }
    out_.steps.push_back(std::move(step));
    return {};
  }

  Result<> run(const Line& line, std::string_view rest) {
    if (rest.starts_with("--")) return refuse(line.number, "RUN with an option", "leave it out: a build has its own cache, and no mounts");
    const auto list = exec_form(rest);
    std::string text = list ? joined(*list) : std::string(rest);
    if (text.empty()) return refuse(line.number, "RUN without a command", "write one");
    out_.steps.push_back({line.number, "RUN", {std::move(text)}, "", ""});
    return {};
  }

  Result<> copy(const Line& line, const std::string& word, std::string_view rest) {
    DockerStep step{line.number, "COPY", {}, "", ""};
    while (rest.starts_with("--")) {
      const std::size_t end = std::min(rest.find_first_of(kBlank), rest.size());
      const std::string_view option = rest.substr(0, end);
      rest = trim(rest.substr(end));
      if (option.starts_with("--chown=")) {
        TRY(step.owner, substituted(line, option.substr(8)));
      } else if (option.starts_with("--chmod=")) {
        step.mode = option.substr(8);
      } else {
        return refuse(
            line.number, fmt::format("{} with {}", word, option.substr(0, 40)),
            option.starts_with("--from") ? "build that part as a template of its own, or COPY its files from the context" : "leave it out");
      }
    }
    auto list = exec_form(rest);
    if (!list) {
      TRY(list, words(line, rest));
    }
    if (list->size() < 2) return refuse(line.number, fmt::format("{} needs a source and a destination", word), "write both");
    for (std::size_t i = 0; i + 1 < list->size(); ++i) {
      TRY(std::string source, substituted(line, (*list)[i]));
      if (source.find("://") != source.npos || source.starts_with("git@"))
        return refuse(line.number, "ADD from a network", "use RUN curl -fsSLO URL");
      static const std::set<std::string, std::less<>> kArchives{".tar", ".tgz", ".txz", ".tbz2", ".tar.gz", ".tar.xz", ".tar.bz2"};
      if (word == "ADD" && std::any_of(kArchives.begin(), kArchives.end(), [&](const std::string& end) { return source.ends_with(end); }))
        return refuse(line.number, "ADD of an archive, which Docker would unpack", "use COPY, then RUN tar -xf");
      step.args.push_back(std::move(source));
    }
    step.args.push_back(list->back());
    out_.steps.push_back(std::move(step));
    return {};
  }

  Result<> single(const Line& line, const std::string& word, std::string_view rest, bool& has) {
    TRY(const auto parts, words(line, rest));
    if (parts.size() != 1) return refuse(line.number, fmt::format("{} takes one word", word), "write one");
    std::string value = parts[0];
    if (word == "USER") {
      TRY(value, substituted(line, value));
      value = value.substr(0, value.find(':'));
      if (value == "0") value = "root";
      if (!value.empty() && std::isdigit(static_cast<unsigned char>(value[0])))
        return refuse(line.number, "USER by number", "name the user");
    }
    has = true;
    out_.steps.push_back({line.number, word, {std::move(value)}, "", ""});
    return {};
  }

  static Result<> command(const Line& line, std::string_view rest, std::string& text, bool& is_list) {
    const auto list = exec_form(rest);
    is_list = list.has_value();
    text = list ? joined(*list) : std::string(rest);
    if (text.empty() && !is_list) return refuse(line.number, "a command is missing", "write one, or [] for none");
    return {};
  }

  const std::map<std::string, std::string>& arguments_;
  std::map<std::string, std::string> values_;  // of ARG and ENV so far
  std::set<std::string> used_;
  Dockerfile out_;
  std::string cmd_, entrypoint_;
  bool cmd_is_list_ = false, entrypoint_is_list_ = false, has_user_ = false, has_folder_ = false;
};

}  // namespace

std::string shell_quoted(std::string_view text) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) || std::string_view("_-./:=,@%+").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), plain)) return std::string(text);
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

Result<Dockerfile> parse_dockerfile(std::string_view text, const std::map<std::string, std::string>& arguments) {
  if (text.size() > kMostBytes) return refuse(1, "the file is larger than 1 MiB", "split it");
  TRY(const std::vector<Line> lines, instructions(text));
  Reader reader(arguments);
  for (const Line& line : lines) TRY_VOID(reader.take(line));
  return reader.finish();
}

}  // namespace space::cli
