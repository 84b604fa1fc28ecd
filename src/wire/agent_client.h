// node's side of the agent protocol. One client a VM; belongs to node's loop.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/async.h"
#include "http/client.h"
#include "http/proxy.h"
#include "wire/agent_protocol.h"

namespace space::wire {

struct AgentHealth {
  std::string version;
  int protocol = 0;
  std::string boot_id;  // random, new at every boot
  std::uint64_t loads = 0;
};

// Everything a guest must get after each load before its processes may run (thaw): see "After every load" in the docs.
struct AgentInit {
  std::string nonce;  // fresh for every load; the agent answers it and refuses a second use
  std::string sandbox_id;
  std::string hostname;
  std::string machine_id;  // 32 hex digits
  std::int64_t wall_ns = 0;
  std::string entropy;                     // 64 raw bytes from the host's kernel
  std::map<std::string, std::string> env;  // of the sandbox; a command's own env goes before it, the template's behind it
  std::uint64_t epoch = 1;
  std::string ca;       // the egress gateway's certificate for this sandbox, PEM; "": none
  bool loaded = false;  // the VM comes from storage or is a fork: connections of its old life are to be closed
};

struct PtySize {
  std::uint16_t rows = 24, cols = 80;
};

struct ProcessSpec {
  std::string session;               // node's session id; the agent only keeps and lists it
  std::vector<std::string> argv;     // either this
  std::optional<std::string> shell;  // or one line for `bash -c`, `sh -c` where there is no bash; not a login shell, whose
                                     // profile would override `env`
  std::string cwd;                   // "": the user's home
  std::map<std::string, std::string> env;
  std::string user;         // "": the template's default user
  bool stdin_open = false;  // false: /dev/null
  std::optional<PtySize> pty;
  std::optional<std::chrono::milliseconds> time_limit;  // then SIGTERM, after `grace` SIGKILL, to the whole group
  std::chrono::milliseconds grace{2'000};
};

struct ProcessInfo {
  std::uint32_t process = 0;  // the agent's own number, from 1; not the kernel's pid
  std::string session;
  std::string state;      // "created", "running", "exited"
  std::uint32_t pid = 0;  // 0 before the start
  std::vector<std::string> argv;
  std::string user;
  std::string cwd;
  bool pty = false;
  std::int64_t started_ms = 0;
  std::uint64_t first_sequence = 1, last_sequence = 0;  // the window that can be replayed
  std::optional<ProcessExit> exit;
};

// The events of one process. Destroying it detaches; the process goes on.
class ProcessStream {
 public:
  virtual ~ProcessStream() = default;
  // Waits for at least one frame, never a keepalive; empty after the exit frame. An agent that is silent for 45 s (its VM is
  // hung or paused) gives `deadline_exceeded`: attach again from the last sequence.
  virtual Task<std::vector<Frame>> next() = 0;
  virtual void cancel() = 0;
};

class AgentClient {
 public:
  AgentClient(asio::any_io_executor executor, http::Connector connector);
  ~AgentClient();

  Task<AgentHealth> health();
  Task<> init(const AgentInit& init);
  Task<> freeze();                                                 // user processes stop until the next init
  Task<> set_environment(std::map<std::string, std::string> env);  // as init's, for commands from now on; not_found: an older agent
  Task<> sync();                                                   // what the guest holds in memory goes to its disk
  Task<std::uint32_t> create(const ProcessSpec& spec);
  // Starts the process when it was not. `after`: the last sequence the reader has; outside the window: conflict/outside_window
  // with "first" and "last" in the message's tail as "first=N last=M".
  Task<std::unique_ptr<ProcessStream>> attach(std::uint32_t process, std::uint64_t after);
  Task<std::vector<ProcessInfo>> list();
  Task<ProcessInfo> get(std::uint32_t process);
  Task<> signal(std::uint32_t process, const std::string& name);  // "TERM", "KILL", "INT", …; to the whole group
  Task<> resize(std::uint32_t process, PtySize size);
  // stdin and files are streamed straight through: `target` is the agent's own request target.
  Task<> forward(http::Exchange& exchange, std::string target, bool event_stream = false);
  http::Client& http();
  void reset();  // drops kept connections, after a load

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace space::wire
