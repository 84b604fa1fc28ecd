// Processes of a real agent, as node sees them.
#include <fcntl.h>
#include <fstream>

#include "agent/test_support.h"

namespace space::agent {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

class Processes : public AgentTest {};

TEST_F(Processes, RunsAProgramWithoutAShell) {
  wire::ProcessSpec spec;
  spec.argv = {"printf", "%s|%s", "a b", "$HOME"};
  const Outcome outcome = run(spec);
  EXPECT_EQ(outcome.out, "a b|$HOME");
  EXPECT_EQ(outcome.exit->code, 0);
  EXPECT_EQ(outcome.first, 1u);
}

TEST_F(Processes, KeepsTheStreamsApartAndReportsTheExitCode) {
  const Outcome outcome = run("echo out; echo err >&2; exit 3");
  EXPECT_EQ(outcome.out, "out\n");
  EXPECT_EQ(outcome.err, "err\n");
  EXPECT_EQ(outcome.exit->code, 3);
  EXPECT_EQ(outcome.exit->signal, 0);
}

TEST_F(Processes, OutputIsBytes) {
  const Outcome outcome =
      run("for i in 0 1 2 3; do for j in 0 1 2 3 4 5 6 7; do for k in 0 1 2 3 4 5 6 7; do printf \"\\\\$i$j$k\"; done; done; done");
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  EXPECT_EQ(outcome.out, all);
}

TEST_F(Processes, ReportsTheSignalThatEndedIt) {
  const Outcome outcome = run("kill -9 $$");
  EXPECT_EQ(outcome.exit->code, -1);
  EXPECT_EQ(outcome.exit->signal, 9);
  EXPECT_FALSE(outcome.exit->timed_out);
}

TEST_F(Processes, SaysWhyAProgramCannotStartAndSaysItAgain) {
  wire::ProcessSpec spec;
  spec.argv = {"there-is-no-such-program"};
  const auto process = create(spec);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(wait(client_->attach(process, 0)).error().code, "command_not_found");
  EXPECT_EQ(wait(client_->get(process))->exit->code, 127);
  spec.argv = {"/etc/passwd"};
  EXPECT_EQ(wait(client_->attach(create(spec), 0)).error().code, "not_executable");
  spec.argv = {"true"};
  spec.cwd = "/nowhere/at/all";
  EXPECT_EQ(wait(client_->attach(create(spec), 0)).error().code, "no_such_directory");
}

TEST_F(Processes, RunsAScriptWithoutAnInterpreterLine) {
  std::ofstream(path("script")) << "echo script $1\n";
  std::filesystem::permissions(path("script"), std::filesystem::perms(0755));
  wire::ProcessSpec spec;
  spec.argv = {path("script"), "x"};
  EXPECT_EQ(run(spec).out, "script x\n");
}

TEST_F(Processes, HasCwdUserGroupsAndEnvironment) {
  auto spec = shell("pwd; id -un; echo $HOME $USER $A; ulimit -n; umask");
  spec.cwd = "/usr";
  spec.user = "daemon";
  spec.env = {{"A", "command"}};
  const Outcome outcome = run(spec);
  EXPECT_EQ(outcome.out, "/usr\ndaemon\n/usr/sbin daemon command\n1024\n0022\n");
  EXPECT_EQ(run("readlink /proc/self/fd/0; ls /proc/self/fd | wc -l").out, "/dev/null\n4\n")
      << "0, 1, 2 and ls's own: nothing of the agent's";
  spec.user = "no such user";
  EXPECT_EQ(wait(client_->create(spec)).error().code, "unknown_user");
}

TEST_F(Processes, UserCanOpenItsOwnStandardStreamsAgain) {
  auto spec = shell("echo one > /dev/stdout; echo two > /dev/stderr");
  spec.user = "daemon";
  const Outcome outcome = run(spec);
  EXPECT_EQ(outcome.out, "one\n");
  EXPECT_EQ(outcome.err, "two\n");
}

TEST_F(Processes, SignalsAreAtTheirDefaults) {
  EXPECT_EQ(run("grep -E 'SigBlk|SigIgn' /proc/self/status").out, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

TEST_F(Processes, ClosedStdinIsTheEndOfFileAtOnce) {
  EXPECT_EQ(run("cat; echo done").out, "done\n");
  const auto process = create(shell("sleep 5"));
  auto stream = wait(client_->attach(process, 0));
  EXPECT_EQ(code_of(ask("POST", "/v1/processes/2/stdin", "x")), "stdin_closed");
  EXPECT_TRUE(wait(client_->signal(process, "KILL")));
}

TEST_F(Processes, StdinIsStreamedInOrderAndEnds) {
  auto spec = shell("read line; echo got $line; cat");
  spec.stdin_open = true;
  const auto process = create(spec);
  auto stream = wait(client_->attach(process, 0));
  ASSERT_TRUE(stream);
  EXPECT_EQ(code_of(ask("POST", "/v1/processes/1/stdin", "first\n")), "");
  EXPECT_EQ(wait(read_until(**stream, [](const Outcome& o) { return !o.out.empty(); }))->out, "got first\n");
  const std::string big(3 << 20, 'b');
  loop_.restart();
  EXPECT_EQ(code_of(ask("POST", "/v1/processes/1/stdin?close=1", "rest")), "");
  EXPECT_EQ(wait(read_until(**stream, [](const Outcome& o) { return o.exit.has_value(); }))->out, "rest");
  EXPECT_EQ(code_of(ask("POST", "/v1/processes/1/stdin", "x")), "process_exited");
}

TEST_F(Processes, LargeStdinGoesThroughWithBackPressure) {
  auto spec = shell("sleep 0.3; wc -c");
  spec.stdin_open = true;
  const auto process = create(spec);
  auto stream = wait(client_->attach(process, 0));
  const auto before = Clock::now();
  EXPECT_EQ(code_of(ask("POST", "/v1/processes/1/stdin?close=1", std::string(4 << 20, 'b'))), "");
  EXPECT_GT(seconds_since(before), 0.2) << "the sender waits for the reader";
  EXPECT_EQ(wait(read_until(**stream, [](const Outcome& o) { return o.exit.has_value(); }))->out, "4194304\n");
}

TEST_F(Processes, EndsWithItsDirectChildAlthoughOthersHoldThePipe) {
  const auto before = Clock::now();
  const Outcome outcome = run("sleep 30 & echo started");
  EXPECT_EQ(outcome.out, "started\n");
  EXPECT_EQ(outcome.exit->code, 0);
  EXPECT_LT(seconds_since(before), 5);
}

TEST_F(Processes, TakesWhatOthersWriteShortlyAfterTheEnd) { EXPECT_EQ(run("(sleep 0.05; echo late) & echo early").out, "early\nlate\n"); }

TEST_F(Processes, AllThatTheChildWroteComesBeforeTheExit) {
  for (int i = 0; i < 20; ++i) {
    const Outcome outcome = run("head -c 60000 /dev/zero; head -c 60000 /dev/zero >&2");
    ASSERT_EQ(outcome.out.size(), 60000u);
    ASSERT_EQ(outcome.err.size(), 60000u);
  }
}

TEST_F(Processes, TimeLimitEndsItPolitely) {
  auto spec = shell("trap 'echo bye; exit 7' TERM; sleep 20 & wait");
  spec.time_limit = milliseconds(200);
  const Outcome outcome = run(spec);
  EXPECT_EQ(outcome.out, "bye\n");
  EXPECT_EQ(outcome.exit->code, 7);
  EXPECT_TRUE(outcome.exit->timed_out);
}

TEST_F(Processes, TimeLimitKillsTheWholeGroupThatDoesNotListen) {
  auto spec = shell("trap '' TERM; sleep 77 & echo $!; sleep 77; sleep 77");
  spec.time_limit = milliseconds(200);
  spec.grace = milliseconds(200);
  const auto before = Clock::now();
  const Outcome outcome = run(spec);
  EXPECT_EQ(outcome.exit->signal, 9);
  EXPECT_TRUE(outcome.exit->timed_out);
  EXPECT_LT(seconds_since(before), 5);
  ::usleep(100'000);
  EXPECT_NE(::kill(std::stoi(outcome.out), 0), 0) << "a child of the command lives on";
}

TEST_F(Processes, TimeLimitHoldsWhenTheClientIsGone) {
  auto spec = shell("sleep 60");
  spec.time_limit = milliseconds(300);
  const auto process = create(spec);
  { auto stream = wait(client_->attach(process, 0)); }
  for (int i = 0; i < 100 && wait(client_->get(process))->state != "exited"; ++i) ::usleep(50'000);
  EXPECT_TRUE(wait(client_->get(process))->exit->timed_out);
}

TEST_F(Processes, OrphansAreReapedAndExitCodesStay) {
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(run("for i in 1 2 3 4 5 6 7 8 9 10; do (sleep 0.1 &); done; exit " + std::to_string(i)).exit->code, i);
  ::usleep(500'000);
  EXPECT_EQ(run("ps -o stat= --ppid " + std::to_string(agent_) + " | grep -c ^Z").out, "0\n");
}

TEST_F(Processes, ReplaysFromWhereAReaderLeftOff) {
  const auto process = create(shell("echo one; read x < /proc/self/fd/9 || sleep 0.3; echo two >&2; sleep 0.1; echo three"));
  std::uint64_t last = 0;
  {
    auto stream = wait(client_->attach(process, 0));
    last = wait(read_until(**stream, [](const Outcome& o) { return !o.out.empty(); }))->last;
  }
  ::usleep(200'000);
  const Outcome rest = follow(process, last);
  EXPECT_EQ(rest.first, last + 1);
  EXPECT_NE(rest.err.find("two\n"), std::string::npos);
  EXPECT_EQ(rest.out, "three\n");
  EXPECT_EQ(follow(process).out, "one\nthree\n") << "and all of it again after the end";
  EXPECT_EQ(wait(client_->attach(process, 99)).error().code, "outside_window");
  EXPECT_NE(wait(client_->attach(process, 99)).error().message.find("first=1 last="), std::string::npos);
}

TEST_F(Processes, WithoutAReaderHeadAndTailStayAndTheRestIsCounted) {
  const auto process = create(shell("echo START; head -c 20000000 /dev/zero | tr '\\0' A; echo END >&2; exit 3"));
  { auto stream = wait(client_->attach(process, 0)); }
  for (int i = 0; i < 300 && wait(client_->get(process))->state != "exited"; ++i) ::usleep(50'000);
  const Outcome outcome = follow(process);
  EXPECT_EQ(outcome.exit->code, 3);
  EXPECT_TRUE(outcome.out.starts_with("START\nAAA"));
  EXPECT_EQ(outcome.err, "END\n");
  EXPECT_EQ(outcome.out.size() + outcome.dropped, 20000006u);
  EXPECT_GT(outcome.out.size(), (64u << 10) + (900u << 10));
  EXPECT_LT(outcome.out.size(), 1200u << 10);
  const auto info = wait(client_->get(process)).value();
  EXPECT_EQ(wait(client_->attach(process, info.first_sequence - 2)).error().code, "outside_window");
}

TEST_F(Processes, AnAttachedReaderHoldsTheProcessBackAndMissesNothing) {
  const auto process = create(shell("head -c 60000000 /dev/zero; touch " + path("done")));
  auto stream = wait(client_->attach(process, 0));
  ::usleep(600'000);
  EXPECT_FALSE(std::filesystem::exists(path("done"))) << "the process must wait for its reader";
  const auto outcome = wait(read_until(**stream, [](const Outcome& o) { return o.exit.has_value(); }));
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->out.size(), 60000000u);
  EXPECT_EQ(outcome->dropped, 0u);
}

TEST_F(Processes, AReaderThatStallsHoldsUpNeitherTheTimeLimitNorTheEnd) {
  auto spec = shell("head -c 60000000 /dev/zero");
  spec.time_limit = milliseconds(500);
  spec.grace = milliseconds(200);
  const auto process = create(spec);
  auto stream = wait(client_->attach(process, 0));
  for (int i = 0; i < 60 && wait(client_->get(process))->state != "exited"; ++i) ::usleep(50'000);
  const auto info = wait(client_->get(process)).value();
  ASSERT_EQ(info.state, "exited");
  EXPECT_TRUE(info.exit->timed_out);
  const auto outcome = wait(read_until(**stream, [](const Outcome& o) { return o.exit.has_value(); }));
  ASSERT_TRUE(outcome && outcome->exit);
  EXPECT_TRUE(outcome->exit->timed_out);
  EXPECT_EQ(outcome->dropped, 0u) << "what the process wrote until then is all there";
  EXPECT_GT(outcome->out.size(), 1u << 20);
}

TEST_F(Processes, SeveralReadersGetEverythingEachFromItsOwnPlace) {
  const auto process = create(shell("for i in 1 2 3 4 5; do echo $i; sleep 0.05; done"));
  auto a = wait(client_->attach(process, 0));
  auto b = wait(client_->attach(process, 0));
  EXPECT_EQ(wait(read_until(**a, [](const Outcome& o) { return o.exit.has_value(); }))->out, "1\n2\n3\n4\n5\n");
  EXPECT_EQ(wait(read_until(**b, [](const Outcome& o) { return o.exit.has_value(); }))->out, "1\n2\n3\n4\n5\n");
}

TEST_F(Processes, SignalsReachTheWholeGroup) {
  const auto process = create(shell("sleep 78 & echo $!; wait; sleep 78"));
  auto stream = wait(client_->attach(process, 0));
  const auto started = wait(read_until(**stream, [](const Outcome& o) { return !o.out.empty(); }));
  EXPECT_EQ(wait(client_->signal(process, "NOSUCH")).error().code, "unknown_signal");
  EXPECT_TRUE(wait(client_->signal(process, "TERM")));
  EXPECT_EQ(wait(read_until(**stream, [](const Outcome& o) { return o.exit.has_value(); }))->exit->signal, 15);
  ::usleep(100'000);
  EXPECT_NE(::kill(std::stoi(started->out), 0), 0);
  EXPECT_EQ(wait(client_->signal(process, "TERM")).error().code, "process_exited");
}

TEST_F(Processes, OneThatWasNeverStartedCanBeEnded) {
  const auto process = create(shell("echo no > " + path("ran")));
  EXPECT_TRUE(wait(client_->signal(process, "KILL")));
  EXPECT_EQ(follow(process).exit->signal, 9);
  EXPECT_FALSE(std::filesystem::exists(path("ran")));
}

TEST_F(Processes, TheOldestExitedAreForgottenAndSaidToBe) {
  for (int i = 0; i < 260; ++i) ASSERT_TRUE(wait(client_->signal(create(shell("true")), "KILL")));
  EXPECT_EQ(wait(client_->get(1)).error().code, "process_forgotten");
  EXPECT_TRUE(wait(client_->get(259)));
  EXPECT_EQ(wait(client_->get(4000)).error().code, "process_not_found");
  EXPECT_EQ(wait(client_->list())->size(), 256u);
}

TEST_F(Processes, ThereIsAMostOfLivingOnes) {
  for (int i = 0; i < 1024; ++i) ASSERT_TRUE(wait(client_->create(shell("true"))));
  EXPECT_EQ(wait(client_->create(shell("true"))).error().code, "too_many_processes");
}

TEST_F(Processes, StandStillWhileFrozenAndNonceIsGoodOnce) {
  const auto process = create(shell("while :; do echo tick; sleep 0.02; done"));
  auto stream = wait(client_->attach(process, 0));
  EXPECT_TRUE(wait(client_->freeze()));
  ::usleep(200'000);
  const auto before = wait(client_->get(process))->last_sequence;
  ::usleep(200'000);
  EXPECT_EQ(wait(client_->get(process))->last_sequence, before);
  wire::AgentInit init{"nonce-0001",
                       "sandboxid",
                       "box",
                       std::string(32, 'a'),
                       1'700'000'000'000'000'000,
                       std::string(64, 'e'),
                       {{"A", "sandbox"}},
                       2,
                       "any text: nothing is written here"};
  EXPECT_TRUE(wait(client_->init(init)));
  EXPECT_EQ(wait(client_->init(init)).error().code, "nonce_used");
  ::usleep(200'000);
  EXPECT_GT(wait(client_->get(process))->last_sequence, before);
  EXPECT_EQ(wait(client_->health())->loads, 1u);
  EXPECT_EQ(run("echo $A $SPACE_SANDBOX_ID").out, "sandbox sandboxid\n");
  EXPECT_EQ(run("echo $SSL_CERT_FILE $NODE_EXTRA_CA_CERTS").out,
            "/etc/ssl/certs/ca-certificates.crt /usr/local/share/ca-certificates/space-egress.crt\n");
  EXPECT_TRUE(wait(client_->signal(process, "KILL")));
}

TEST_F(Processes, RefusesRequestsThatMakeNoSense) {
  const auto post = [&](std::string body) { return code_of(ask("POST", "/v1/processes", std::move(body))); };
  EXPECT_EQ(post("{"), "invalid_json");
  EXPECT_EQ(post("[]"), "invalid_json");
  EXPECT_EQ(post("{}"), "invalid_command");
  EXPECT_EQ(post(R"({"argv":[]})"), "invalid_command");
  EXPECT_EQ(post(R"({"argv":[""]})"), "invalid_command");
  EXPECT_EQ(post(R"({"argv":["a"],"shell":"b"})"), "invalid_command");
  EXPECT_EQ(post(R"({"argv":["a\u0000b"]})"), "invalid_command");
  EXPECT_EQ(post(R"({"argv":"ls"})"), "invalid_field");
  EXPECT_EQ(post(R"({"shell":"ls","env":{"A=B":"x"}})"), "invalid_environment");
  EXPECT_EQ(post(R"({"shell":"ls","time_limit_ms":0})"), "invalid_field");
  EXPECT_EQ(post(R"({"shell":"ls","pty":{"rows":0,"cols":80}})"), "invalid_field");
  EXPECT_EQ(post(R"({"shell":"ls","pty":{"rows":-1,"cols":80}})"), "invalid_field");
  EXPECT_EQ(post(R"({"shell":"ls","pty":{"cols":80}})"), "invalid_field");
  EXPECT_EQ(post("{\"shell\":\"" + std::string(2 << 20, 'x') + "\"}"), "body_too_large");
  EXPECT_EQ(post(std::string(100, '[')), "json_too_deep");
  EXPECT_EQ(code_of(ask("GET", "/v1/processes/abc")), "process_not_found");
  EXPECT_EQ(code_of(ask("GET", "/v1/nothing")), "route_not_found");
}

TEST_F(Processes, StrangersAreRefused) {
  stop_agent();
  start_agent({"--listen", "127.0.0.1:49983"});
  http::Client stranger(loop_.get_executor(), http::tcp_connector("127.0.0.1", 49983));
  http::Request request;
  request.target = "/v1/health";
  EXPECT_EQ(wait(stranger.call(request)).error().code, "peer_refused");
}

class Terminals : public AgentTest {
 protected:
  wire::ProcessSpec terminal(std::string line, std::uint16_t rows, std::uint16_t cols) {
    auto spec = shell(std::move(line));
    spec.pty = wire::PtySize{rows, cols};
    return spec;
  }
};

TEST_F(Terminals, HaveASizeThatFollows) {
  const auto process = create(terminal("trap 'stty size' WINCH; stty size; tty; while :; do sleep 0.05; done", 30, 100));
  auto stream = wait(client_->attach(process, 0));
  const auto first = wait(read_until(**stream, [](const Outcome& o) { return o.terminal.find("/dev/pts/") != std::string::npos; }));
  EXPECT_TRUE(first->terminal.starts_with("30 100\r\n"));
  EXPECT_TRUE(wait(client_->resize(process, {60, 20})));
  EXPECT_NE(wait(read_until(**stream, [](const Outcome& o) { return o.terminal.find("60 20") != std::string::npos; }))
                ->terminal.find("60 20\r\n"),
            std::string::npos);
  for (const char* body : {R"({"rows":0,"cols":1})", R"({"rows":5,"cols":-1})", R"({"rows":70000,"cols":1})"})
    EXPECT_EQ(code_of(ask("POST", "/v1/processes/1/resize", body)), "invalid_field");
  EXPECT_TRUE(wait(client_->signal(process, "KILL")));
}

TEST_F(Terminals, TakeInputAndEndOfFile) {
  const auto process = create(terminal("cat; echo over", 24, 80));
  auto stream = wait(client_->attach(process, 0));
  EXPECT_EQ(code_of(ask("POST", "/v1/processes/1/stdin", "hello\n")), "");
  EXPECT_TRUE(wait(read_until(**stream, [](const Outcome& o) { return o.terminal.find("hello\r\nhello\r\n") != std::string::npos; })));
  EXPECT_EQ(code_of(ask("POST", "/v1/processes/1/stdin?close=1")), "");
  const auto rest = wait(read_until(**stream, [](const Outcome& o) { return o.exit.has_value(); }));
  EXPECT_NE(rest->terminal.find("over\r\n"), std::string::npos);
  EXPECT_EQ(rest->exit->code, 0);
}

TEST_F(Terminals, AreTheControllingTerminalOfTheUser) {
  auto spec = terminal("echo yes > /dev/tty; test -w $(tty) && echo mine", 24, 80);
  spec.user = "daemon";
  EXPECT_EQ(run(spec).terminal, "yes\r\nmine\r\n");
}

TEST_F(Terminals, InterruptByTheKeyAndKillOfAJob) {
  const auto process = create(terminal("sleep 50; echo after", 24, 80));
  auto stream = wait(client_->attach(process, 0));
  ::usleep(200'000);
  EXPECT_EQ(code_of(ask("POST", "/v1/processes/1/stdin", "\x03")), "");
  EXPECT_EQ(wait(read_until(**stream, [](const Outcome& o) { return o.exit.has_value(); }))->exit->signal, 2);
}

}  // namespace
}  // namespace space::agent
