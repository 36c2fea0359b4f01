# Read by interactive shells.
case $- in
  *i*) ;;
  *) return ;;
esac
HISTCONTROL=ignoreboth
shopt -s histappend checkwinsize
PS1='\u@\h:\w\$ '
alias ls='ls --color=auto'
