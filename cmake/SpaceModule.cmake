# space_module(NAME [APART] [LINK targets…]): one folder of src/ as one static library and, from its *_test.cc, one test program.
# Files are found by their names: x.h, x.cc, x_test.cc; x_fuzz.cc becomes a libFuzzer target of its own.
# main.cc belongs to a program, never to the library. `fuzzers` builds every fuzz target.
add_custom_target(fuzzers)

function(space_module NAME)
  cmake_parse_arguments(M "APART" "" "LINK" ${ARGN})
  file(GLOB SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  file(GLOB TESTS CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cc)
  file(GLOB FUZZERS CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_fuzz.cc)
  list(FILTER SOURCES EXCLUDE REGEX "(_test|_fuzz|/main)\\.cc$")

  if(SOURCES)
    add_library(space_${NAME} STATIC ${SOURCES})
    target_include_directories(space_${NAME} PUBLIC ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(space_${NAME} PUBLIC space_options ${M_LINK})
    space_precompile(space_${NAME})
    if(NOT M_APART)
      space_unity(space_${NAME})
    endif()
  else()
    add_library(space_${NAME} INTERFACE)
    target_include_directories(space_${NAME} INTERFACE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(space_${NAME} INTERFACE space_options ${M_LINK})
  endif()

  if(TESTS)
    add_executable(${NAME}_test ${TESTS})
    target_link_libraries(${NAME}_test PRIVATE space_${NAME} GTest::gmock GTest::gtest_main)
    space_precompile(${NAME}_test)
    space_unity(${NAME}_test)
    # One ctest entry a module: gtest runs the cases itself, which starts one process instead of hundreds.
    add_test(NAME unit.${NAME} COMMAND ${NAME}_test --gtest_brief=1)
    set_tests_properties(unit.${NAME} PROPERTIES TIMEOUT 300 LABELS unit)
  endif()

  if(SPACE_FUZZ)
    foreach(FUZZER ${FUZZERS})
      get_filename_component(TARGET ${FUZZER} NAME_WE)
      add_executable(${TARGET} ${FUZZER})
      target_link_libraries(${TARGET} PRIVATE space_${NAME} -fsanitize=fuzzer)
      add_dependencies(fuzzers ${TARGET})
    endforeach()
  endif()
endfunction()

# Every target shares the one precompiled header of src/base, which holds the heavy library headers (Asio, JSON, fmt).
function(space_precompile TARGET)
  if(NOT SPACE_PCH)
    return()
  endif()
  if(TARGET space_pch)
    target_precompile_headers(${TARGET} REUSE_FROM space_pch)
  endif()
endfunction()

# Compiles the files of TARGET in batches of eight: most of a file's time goes into templates of the libraries, which a batch makes once, and a
# build from nothing takes half the time. The files of a batch share one unnamed namespace: a helper that two of them want stands in a header,
# two things that only share a name get one each. APART leaves a folder out: the agent takes single objects out of what it links, and stays small.
function(space_unity TARGET)
  set_target_properties(${TARGET} PROPERTIES UNITY_BUILD ${SPACE_UNITY} UNITY_BUILD_BATCH_SIZE 8)
endfunction()
