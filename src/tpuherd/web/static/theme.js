// Sets the chosen colours before the first paint; a plain script, since modules run later.
try {
  const theme = localStorage.getItem("herd-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage may be forbidden: the system's colours are used.
}
