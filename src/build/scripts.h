// What a build runs as root in its sandbox for the steps that are not the client's own lines. The client's words come as arguments,
// never as part of a line.
#pragma once

namespace space::build {

// sh -c SCRIPT copy ARCHIVE SOURCE DESTINATION OWNER MODE FOLDER USER: unpacks and puts SOURCE where it belongs.
extern const char* const kCopyScript;
// sh -c SCRIPT workdir PATH USER: makes it; only what is new belongs to the user.
extern const char* const kWorkdirScript;
// sh -c SCRIPT user NAME SUDO: makes the user when there is none; SUDO "true": without a password.
extern const char* const kUserScript;
// python3 -c SCRIPT ARCHIVE: replaces the root filesystem by that of an OCI layout or a docker archive.
extern const char* const kImageScript;

}  // namespace space::build
