// The colours of the theme, for what is drawn on a canvas. Light or dark as the system is, or as was chosen here.

const NAMES = [
  "--ground", "--sheet", "--raised", "--sea", "--land", "--shore", "--grid", "--line", "--text", "--soft", "--faint",
  "--link", "--good", "--warning", "--warning-ink", "--bad", "--accent", "--accent-soft", "--reserved", "--path-0", "--path-1",
  "--path-2", "--path-3",
];
const DARK = matchMedia("(prefers-color-scheme: dark)");

export const colours = {};

export function startTheme(changed) {
  const apply = () => {
    const wanted = localStorage.getItem("overlane-theme") ?? (DARK.matches ? "dark" : "light");
    document.documentElement.dataset.theme = wanted;
    const style = getComputedStyle(document.documentElement);
    for (const name of NAMES) colours[name] = style.getPropertyValue(name).trim();
    changed();
  };
  DARK.addEventListener("change", apply);
  apply();
  return () => {
    const now = document.documentElement.dataset.theme;
    localStorage.setItem("overlane-theme", now === "dark" ? "light" : "dark");
    apply();
  };
}
