# shellcheck shell=bash
# Helpers for the scripts in hack/, which source this file.

script=${0##*/}
unset CDPATH # with it, cd prints

die() { printf '%s: %s\n' "$script" "$*" >&2 && exit 1; }
misuse() { printf '%s: %s\n' "$script" "$*" >&2 && exit 2; }

# Sets name, tag and digest from NAME[:TAG][@DIGEST].
split_image() {
  [[ $1 =~ ^[A-Za-z0-9][A-Za-z0-9._/:@-]*$ ]] || misuse "'$1' is not the name of an image"
  name=${1%%@*} tag='' digest=''
  if [[ $1 == *@* ]]; then digest=${1#*@}; fi
  if [[ ${name##*/} == *:* ]]; then tag=${name##*:} name=${name%:*}; fi
}
