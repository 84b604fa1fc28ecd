// The user's terminal while it belongs to a program in a sandbox.
#pragma once

#include <cstdint>

namespace space::cli {

struct TerminalSize {
  std::uint16_t rows = 24, columns = 80;
  bool operator==(const TerminalSize&) const = default;
};
TerminalSize terminal_size();  // of standard output, else standard input, else 24 by 80

// Every key goes to the guest as it is: no line editing, no echo, no signals. The destructor puts back what was, and so do
// the signals that end a process without unwinding it (SEGV, ABRT and their like). One at a time.
class RawTerminal {
 public:
  RawTerminal();  // does nothing when standard input is no terminal
  ~RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  bool active_ = false;
};

}  // namespace space::cli
