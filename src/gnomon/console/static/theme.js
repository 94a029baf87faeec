// Before anything is drawn: the theme that the reader chose, else the system's.
(() => {
  const chosen = localStorage.getItem("gnomon.theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
})();
