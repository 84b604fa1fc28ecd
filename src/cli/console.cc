#include "cli/console.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fmt/format.h>

#include "base/encoding.h"

namespace space::cli {
namespace {

void put(std::FILE* to, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), to);
  std::fputc('\n', to);
  std::fflush(to);
}

}  // namespace

bool stdout_is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }
bool stderr_is_terminal() {
  const char* kind = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && !(kind && std::string_view(kind) == "dumb");
}

void Console::line(std::string_view text) { put(stdout, text); }
void Console::note(std::string_view text) { put(stderr, text); }
void Console::value(const json::value& value) { put(stdout, json::serialize(value)); }
void Console::result(const json::value& value, std::string_view text) { json_ ? this->value(value) : line(text); }

void Console::error(const Error& error) {
  if (json_) {
    put(stderr, json::serialize(json::object{{"error", {{"code", error.code}, {"message", error.message}, {"next", error.next}}}}));
    return;
  }
  put(stderr, fmt::format("space: {} ({})", printable(error.message), printable(error.code)));
  if (!error.next.empty()) put(stderr, fmt::format("       {}", printable(error.next)));
}

std::string printable(std::string_view text) {
  const bool utf8 = is_utf8(text);
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F, which some terminals obey, are 0xc2 0x80…0x9f.
    const bool c1 = utf8 && c == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (c < 0x20 || c == 0x7f || (!utf8 && c >= 0x80))
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", c);
    else if (c1)
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(text[++i]));
    else
      out.push_back(text[i]);
  }
  return out;
}

std::size_t display_width(std::string_view utf8) {
  return static_cast<std::size_t>(std::ranges::count_if(utf8, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string Table::text() const {
  std::vector<std::vector<std::string>> rows = rows_;
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (auto& row : rows)
    for (std::size_t i = 0; i < row.size() && i < widths.size(); ++i) {
      row[i] = row[i].empty() ? "-" : printable(row[i]);
      widths[i] = std::max(widths[i], display_width(row[i]));
    }
  std::string out;
  for (const auto& row : rows) {
    std::string text;
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += row[i];
      if (i + 1 < row.size()) text.append(widths[i] - display_width(row[i]) + 2, ' ');
    }
    if (!out.empty()) out += '\n';
    out += text;
  }
  return out;
}

std::string format_bytes(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) value /= 1024, ++unit;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string format_age(std::string_view rfc3339, std::int64_t now_ms) {
  std::tm parts{};
  if (!::strptime(std::string(rfc3339).c_str(), "%Y-%m-%dT%H:%M:%S", &parts)) return {};
  const std::int64_t seconds = std::max<std::int64_t>(0, now_ms / 1000 - ::timegm(&parts));
  if (seconds < 120) return fmt::format("{}s", seconds);
  if (seconds < 2 * 3600) return fmt::format("{}m", seconds / 60);
  if (seconds < 2 * 86400) return fmt::format("{}h", seconds / 3600);
  return fmt::format("{}d", seconds / 86400);
}

struct Spinner::State {
  std::string text;
  bool over = false;
};

Spinner::Spinner(asio::any_io_executor executor, std::string text) : state_(std::make_shared<State>(State{std::move(text)})) {
  if (!stderr_is_terminal()) return;
  spawn(executor, [](std::shared_ptr<State> state) -> asio::awaitable<void> {
    static constexpr std::string_view kSigns[] = {"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"};
    // Most things are over before the first sign, and then nothing flickers.
    co_await sleep_for(std::chrono::milliseconds(150));
    for (std::size_t i = 0; !state->over; ++i) {
      fmt::print(stderr, "\r\x1b[K{} {}", kSigns[i % std::size(kSigns)], state->text);
      std::fflush(stderr);
      co_await sleep_for(std::chrono::milliseconds(80));
    }
  }(state_));
}

Spinner::~Spinner() {
  state_->over = true;
  if (stderr_is_terminal()) {
    fmt::print(stderr, "\r\x1b[K");
    std::fflush(stderr);
  }
}

void Spinner::text(std::string text) { state_->text = std::move(text); }

ProgressBar::ProgressBar(std::string title, std::uint64_t total, bool visible)
    : title_(std::move(title)), total_(total), visible_(visible && stderr_is_terminal()) {}

ProgressBar::~ProgressBar() {
  if (visible_ && drawn_ != decltype(drawn_){}) {
    draw();
    fmt::print(stderr, "\n");
  }
}

void ProgressBar::add(std::uint64_t bytes) {
  done_ += bytes;
  const auto now = std::chrono::steady_clock::now();
  if (!visible_ || now - drawn_ < std::chrono::milliseconds(100)) return;
  drawn_ = now;
  draw();
}

void ProgressBar::draw() {
  constexpr std::size_t kWidth = 30;
  const double part = total_ == 0 ? 1 : std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_));
  const auto filled = static_cast<std::size_t>(part * kWidth);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
  const auto speed = static_cast<std::uint64_t>(static_cast<double>(done_) / std::max(seconds, 0.001));
  fmt::print(stderr, "\r\x1b[K{} [{}{}] {:3.0f} %  {}  {}/s", printable(title_), std::string(filled, '#'),
             std::string(kWidth - filled, ' '), part * 100, format_bytes(done_), format_bytes(speed));
  std::fflush(stderr);
}

}  // namespace space::cli
