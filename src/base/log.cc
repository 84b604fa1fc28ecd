#include "base/log.h"

#include <memory>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "base/clock.h"
#include "base/encoding.h"

namespace space::log {
namespace {

constexpr std::size_t kLongestValue = 2048;

struct Sink {
  std::string role = "space";
  std::shared_ptr<spdlog::logger> logger;
  Sink() {
    logger = std::make_shared<spdlog::logger>("space", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    logger->set_pattern("%v");
    logger->flush_on(spdlog::level::debug);
  }
};

Sink& sink() {
  static Sink instance;
  return instance;
}

spdlog::level::level_enum level_of(Level level) {
  switch (level) {
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warn:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

void append_quoted(std::string& out, std::string_view text) {
  const bool cut = text.size() > kLongestValue;
  text = text.substr(0, kLongestValue);
  const bool utf8 = is_utf8(text);
  out.push_back('"');
  for (char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (u < 0x20 || u == 0x7f || (!utf8 && u >= 0x80)) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", u);
    } else {
      out.push_back(c);
    }
  }
  if (cut) out.append("…");
  out.push_back('"');
}

}  // namespace

void configure(std::string_view role, Level least) {
  sink().role = role;
  sink().logger->set_level(level_of(least));
}

void write(Level level, std::string_view event, std::initializer_list<Field> fields) {
  auto& logger = *sink().logger;
  if (!logger.should_log(level_of(level))) return;
  static constexpr std::string_view kNames[] = {"debug", "info", "warn", "error"};
  std::string line = fmt::format(R"({{"time":"{}","level":"{}","role":"{}","event":"{}")", rfc3339(system_clock().wall_ms()),
                                 kNames[static_cast<int>(level)], sink().role, event);
  for (const Field& field : fields) {
    line.push_back(',');
    append_quoted(line, field.key);
    line.push_back(':');
    if (field.is_number)
      fmt::format_to(std::back_inserter(line), "{}", field.number);
    else
      append_quoted(line, field.text);
  }
  line.push_back('}');
  logger.log(level_of(level), spdlog::string_view_t(line));
}

}  // namespace space::log
