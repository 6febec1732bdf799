// Light or dark: as the system says, unless the reader has chosen.

const STORED = "odradek.scheme";

export function startScheme(select) {
  select.value = stored();
  apply(select.value);
  select.addEventListener("change", () => {
    apply(select.value);
    try {
      localStorage.setItem(STORED, select.value);
    } catch {
      // A browser without storage forgets the choice.
    }
  });
}

function stored() {
  try {
    const value = localStorage.getItem(STORED);
    return value === "light" || value === "dark" ? value : "system";
  } catch {
    return "system";
  }
}

function apply(scheme) {
  if (scheme === "system") delete document.documentElement.dataset.scheme;
  else document.documentElement.dataset.scheme = scheme;
}
