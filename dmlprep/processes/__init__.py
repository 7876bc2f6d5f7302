"""How child processes are started and ended on each system, whatever they are for."""
