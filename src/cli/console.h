// What people and scripts see. Results go to standard output, everything else to standard error; colours, spinners and bars
// only to a terminal. Text from a guest is shown with its control bytes escaped, so that it cannot drive the terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/async.h"
#include "base/json.h"
#include "base/result.h"

namespace space::cli {

class Console {
 public:
  explicit Console(bool as_json) : json_(as_json) {}
  bool as_json() const { return json_; }
  void line(std::string_view text);                              // to standard output
  void note(std::string_view text);                              // to standard error
  void value(const json::value& value);                          // one line of JSON to standard output
  void result(const json::value& value, std::string_view text);  // the one with --json, else the other
  void error(const Error& error);                                // "space: message (code)" and the next step; with --json an object

 private:
  bool json_;
};

bool stdout_is_terminal();
bool stderr_is_terminal();

// Rows under a header, columns aligned, the last one as wide as it needs.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string printable(std::string_view text);  // control bytes and broken UTF-8 as \xNN
std::size_t display_width(std::string_view utf8);
std::string format_bytes(std::uint64_t bytes);                          // "1.5 MiB"
std::string format_age(std::string_view rfc3339, std::int64_t now_ms);  // "3m"; "" when it is no time

// A moving sign with a text while something takes its time; nothing when standard error is no terminal. Gone when destroyed.
class Spinner {
 public:
  Spinner(asio::any_io_executor executor, std::string text);
  ~Spinner();
  Spinner(const Spinner&) = delete;
  Spinner& operator=(const Spinner&) = delete;
  void text(std::string text);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// A bar over a known number of bytes. Draws at most ten times a second, and only to a terminal.
class ProgressBar {
 public:
  ProgressBar(std::string title, std::uint64_t total, bool visible);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  void add(std::uint64_t bytes);
  void expect(std::uint64_t more) { total_ += more; }

 private:
  void draw();
  std::string title_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  bool visible_;
  std::chrono::steady_clock::time_point drawn_{};
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};

}  // namespace space::cli
